"""``hp.join`` of two streams on Spark: each pair of the offline answer exactly once, whatever comes late or stalls."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import haply as hp
import oracle_distance as oracle
from haply.engines.spark.streaming.parcels import CONTROL
from haply.errors import HaplyError
from haply.models import GaussianND, Uniform, sky_positions
from stream_kit import (
    DELAY,
    EPS,
    POINT,
    POSITION,
    THRESHOLD,
    WINDOW,
    assert_pairs,
    await_that,
    pairs_in,
    random_clouds,
    read_stream,
    running,
    samples,
    scattered,
    settings,
    write_file,
    write_sides,
)

NEAR = hp.distance(hp.left.pos, hp.right.pos) <= EPS

TIMES = {
    # name: (start, names of the columns, window, delay)
    "very large numbers": (1e15, ("t", "when"), 40, 6),
    "timestamps": (None, ("a", "b"), "40 seconds", "6 seconds"),
}


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("cells", "shuffled", "kind"),
    [
        (1, True, "very large numbers"),
        (5, True, "timestamps"),
    ],
)
def test_batch_equals_stream(spark, tmp_path, cells, shuffled, kind):
    """A table, a stream in order and one that is shuffled give the same pairs, with one cell and with many."""
    start, names, window, max_delay = TIMES[kind]
    begun = np.datetime64("2024-03-10T06:58:30", "us")  # two minutes around which New York's clocks change
    times = [
        begun + (own * 1e6).astype("timedelta64[us]") if start is None else start + own for own in scattered().times
    ]
    write_sides(tmp_path, scattered().sides, times, names, shuffled, files=3)
    options = {"on": NEAR, "threshold": THRESHOLD, "time": names, "window": window, "max_delay": max_delay}
    where = "America/New_York" if start is None else "UTC"
    with settings(spark, spark__haply__cells=cells, spark__sql__session__timeZone=where):
        tables = [spark.read.parquet(str(tmp_path / side)) for side in "lr"]
        from_tables = pairs_in(hp.join(*tables, **options))
        result = hp.join(*(read_stream(spark, tmp_path / side) for side in "lr"), **options)
        assert result.isStreaming
        left, right = (
            name + suffix * (names[0] == names[1]) for name, suffix in zip(names, ("_left", "_right"), strict=True)
        )
        assert result.columns == ["id_left", left, "pos_left", "id_right", right, "pos_right", "probability"]
        with running(result, tmp_path, "pairs") as query:
            query.processAllAvailable()
            batches = [progress["numInputRows"] for progress in query.recentProgress]
            found = spark.table("pairs").select(
                "id_left", "id_right", "probability", left, right, "pos_left", "pos_right"
            )
            rows = [tuple(row) for row in found.collect()]
    assert batches[:3] == [32] * 3
    for pairs in (from_tables, [row[:3] for row in rows]):
        assert_pairs(pairs, scattered().wanted, *scattered().sides, EPS, THRESHOLD)
    for i, j, _, mine, theirs, here, there in rows:
        for side, k, time_of, position in ((0, i, mine, here), (1, j, theirs, there)):
            cloud = scattered().sides[side][k]
            if start is None:
                time_of = np.datetime64(time_of.astimezone(UTC).replace(tzinfo=None), "us")
            assert time_of == times[side][k], "the row that comes out is the row that went in"
            assert (position["points"], position["dim"]) == (cloud.points.ravel().tolist(), 2)


@pytest.mark.long
def test_a_stream_that_stalls_loses_nothing(spark, tmp_path):
    """The right comes when all of the left has been seen: the left's rows have waited for it. Times are negative."""
    with settings(spark, spark__haply__cells=4):
        write_sides(tmp_path, scattered().sides, [own - 300.0 for own in scattered().times], files=2)
        waiting = [path.rename(tmp_path / path.name) for path in sorted((tmp_path / "r").glob("*.parquet"))]
        left, right = (read_stream(spark, tmp_path / side, like=tmp_path / "l") for side in "lr")
        funnel = hp.Funnel()
        result = hp.join(left, right, NEAR, THRESHOLD, time="t", window=WINDOW, max_delay=DELAY, funnel=funnel)
        with running(result, tmp_path, "stalled") as query:
            query.processAllAvailable()
            assert spark.table("stalled").count() == 0
            for path in waiting:
                path.rename(tmp_path / "r" / path.name)
            query.processAllAvailable()
            found = pairs_in(spark.table("stalled"))
            await_that(lambda: funnel.to_dict()["kept"] == len(found), "all pairs are counted")
    assert_pairs(found, scattered().wanted, *scattered().sides, EPS, THRESHOLD)
    counts = funnel.to_dict()
    assert (counts["late_left"], counts["late_right"]) == (0, 0)
    assert (counts["rows_left"], counts["rows_right"]) == (48, 48)


def remembered(spark, checkpoint, batch):
    """Rows and bytes in the state after a batch, by cell."""
    held = {}
    for name, value in (("pieces", "user_map_value"), ("index", "value")):
        reader = spark.read.format("statestore").option("path", str(checkpoint)).option("stateVarName", name)
        rows = reader.option("batchId", batch).load().where(f"key.cell <> {CONTROL}")
        for row in rows.selectExpr("key.cell", f"length({value}.data) AS bytes").collect():
            count, size = held.get(row["cell"], (0, 0))
            held[row["cell"]] = (count + 1, size + row["bytes"])
    return held


@pytest.fixture(scope="module")
def long_run(spark, tmp_path_factory):
    """Eleven windows, one a batch, in one cell; two other cells have rows for a while; and five rows come far too late.

    The late rows have one partner each, far away from all others, that came in time.
    """
    folder, rng = tmp_path_factory.mktemp("long"), np.random.default_rng(31)
    window, delay, files = 10.0, 2.0, 11

    def at(x):
        return oracle.cloud([[x, 0.0], [x + 0.1, 0.0]])

    sides, times, batches = ([], []), ([], []), ([], [])

    def put(side, batch, t, cloud):
        sides[side].append(cloud)
        times[side].append(t)
        batches[side].append(batch)

    for k in range(files):
        for side in (0, 1):
            for t in np.sort(rng.uniform(0.0, 10.0, 10)):
                put(side, k, 10.0 * k + t, at(float(rng.uniform(7.0, 13.0))))  # block 0, cell 0
    for side in (0, 1):
        for x in (27.0, 30.0, 33.0):
            put(side, 0, 5.0, at(x))  # block 1, cell 1
    for x, late in ((1007.0, 0), (1009.0, 0), (1011.0, 0), (1013.0, 1), (1015.0, 1)):  # block 50, cell 2
        put(1 - late, 4, 45.0, at(x))
        put(late, 9, 45.5, at(x))
    for side, name in enumerate("lr"):
        table = pa.table({"id": np.arange(len(times[side])), "t": times[side], "pos": samples(sides[side])})
        for k in range(files):
            write_file(folder / name, k, table.filter(pa.array(np.array(batches[side]) == k)))
    wanted = oracle.all_pairs(*sides, *times, window=window, eps=1.0, threshold=0.3)
    late = {pair for pair in wanted if {batches[0][pair[0]], batches[1][pair[1]]} == {4, 9}}
    assert len(late) == 5
    funnel = hp.Funnel()
    with settings(spark, spark__haply__cells=3):
        streams = [read_stream(spark, folder / name) for name in "lr"]
        near = "DISTANCE(left.pos, right.pos) <= 1"
        result = hp.join(*streams, near, 0.3, time="t", window=window, max_delay=delay, funnel=funnel)
        with running(result, folder, "long") as query:
            query.processAllAvailable()
            found = pairs_in(spark.table("long"))
            progress = query.recentProgress
            await_that(lambda: funnel.to_dict()["kept"] == len(found), "all pairs are counted")
    return SimpleNamespace(
        found=found, wanted=set(wanted), late=late, sides=sides, progress=progress, funnel=funnel.to_dict(),
        rows=[len(side) for side in times], checkpoint=folder / "checkpoint-long", text=str(funnel),
    )  # fmt: skip


@pytest.mark.long
def test_late_rows_are_joined_or_counted(long_run):
    found = {(i, j) for i, j, _ in long_run.found}
    missing = long_run.late - found
    assert_pairs(long_run.found, long_run.wanted - missing, *long_run.sides, 1.0, 0.3)
    counts = long_run.funnel
    assert counts["late_left"] + counts["late_right"] == len(missing)
    assert (counts["late_left"], counts["late_right"]) == (3, 2), "two windows late: their partners are forgotten"
    assert "late rows" in long_run.text


@pytest.mark.long
def test_the_funnel_of_a_stream(long_run):
    counts = long_run.funnel
    assert [counts["rows_left"], counts["rows_right"]] == long_run.rows
    assert counts["kept"] == len(long_run.found)
    assert counts["invalid_left"] == counts["invalid_right"] == counts["null_left"] == counts["null_right"] == 0
    decided = sum(counts["rejected"].values()) + sum(counts["accepted"].values())
    assert counts["candidates"] == counts["evaluated"] + decided
    assert counts["pairs_possible"] >= counts["candidates"] >= counts["kept"] > 100


@pytest.mark.long
def test_idle_cells_are_emptied(spark, long_run):
    last = long_run.progress[-1]["batchId"]
    assert set(remembered(spark, long_run.checkpoint, 0)) == {0, 1}
    assert set(remembered(spark, long_run.checkpoint, 5)) == {0, 2}
    assert set(remembered(spark, long_run.checkpoint, last)) == {0}


@pytest.mark.long
def test_state_stays_flat_over_ten_windows(spark, long_run):
    totals = [progress["stateOperators"][0]["numRowsTotal"] for progress in long_run.progress]
    assert len(totals) >= 11
    assert max(totals[4:]) <= max(totals[1:4]) + 3, totals
    assert totals[-1] <= 1 + 2 * 4, "the index, and for each side a few pieces of the last three batches"
    early, late = (remembered(spark, long_run.checkpoint, batch)[0] for batch in (3, 10))
    assert late[1] < 1.25 * early[1]
    assert sum(early) > 0


ODD_COLUMNS = {
    "tags": pa.map_(pa.string(), pa.int32()), "day": pa.date32(), "price": pa.decimal128(9, 2),
    "names": pa.list_(pa.string()), "raw": pa.binary(), "seen": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"),
}  # fmt: skip


def odd_values(k):
    day = datetime(2024, 5, 1 + k % 20, 3, 4, 5)
    return {
        "tags": [("k", k)], "day": day.date(), "price": Decimal(k) / 4, "names": [None, f"n{k}"],
        "raw": bytes([k, 0]), "seen": day.replace(tzinfo=UTC), "local": day,
    }  # fmt: skip


@pytest.mark.long
def test_conditions_bad_rows_and_columns_of_all_kinds(spark, tmp_path):
    """Equalities, also of two types; certain conditions; strict, no probabilities, suffixes; bad rows are counted."""
    rng = np.random.default_rng(41)
    n = 40
    clouds = [random_clouds(rng, n, 2, spread=2.0, most=5) for _ in range(2)]
    sites = [rng.choice(["a", "b", None], n).tolist() for _ in range(2)]
    codes, kinds = {"a": 0, "b": 1, None: 0}, (pa.int32(), pa.int64())
    ranks = [rng.integers(0, 4, n) for _ in range(2)]
    times = [np.sort(rng.uniform(0.0, 40.0, n)) for _ in range(2)]
    broken = [
        {"points": [], "probs": None, "dim": 2},
        {"points": [float("nan"), 0.0], "probs": None, "dim": 2},
        {"points": [0.0, 0.0, 1.0, 1.0], "probs": [0.5, 0.6], "dim": 2},
        {"points": [0.0, 0.0, 1.0], "probs": None, "dim": 2},
        {"points": [0.0, 0.0, 0.0], "probs": None, "dim": 3},  # of another dimension than all others: meets nobody
        None,
    ]
    whole = {"points": [0.0, 0.0], "probs": None, "dim": 2}
    never = [None, float("nan"), float("inf"), -float("inf")]
    for side, name in enumerate("lr"):
        positions = samples(clouds[side]).to_pylist() + (broken if side == 0 else []) + [whole] * len(never)
        more = len(positions) - n
        table = pa.table(
            {
                "id": pa.array(np.arange(len(positions))),
                "t": pa.array([*times[side], *[40.0] * (more - len(never)), *never]),
                "site": pa.array(sites[side] + ["a"] * more, pa.string()),
                "code": pa.array([codes[site] for site in sites[side]] + [0] * more, kinds[side]),
                "rank": pa.array([*ranks[side], *[1] * more]),
                "pos": pa.array(positions, POSITION),
            }
        )
        if side == 0:
            values = [odd_values(k) for k in range(len(positions))]
            for column, kind in ODD_COLUMNS.items():
                table = table.append_column(column, pa.array([value[column] for value in values], kind))
        for k, (begin, end) in enumerate(((0, n // 2), (n // 2, len(positions)))):
            write_file(tmp_path / name, k, table.slice(begin, end - begin))
    wanted = {
        (i, j)
        for i, j in oracle.all_pairs(
            *clouds, *(t.tolist() for t in times), window=15.0, eps=1.5, threshold=0.25, strict=True
        )
        if sites[0][i] is not None and sites[0][i] == sites[1][j] and ranks[0][i] > 0 and ranks[0][i] + ranks[1][j] < 5
    }
    assert len(wanted) > 10
    on = "DISTANCE(left.pos, right.pos) <= 1.5 AND left.site = right.site AND left.code = right.code"
    on += " AND left.rank > 0 AND left.rank + right.rank < 5"
    funnel = hp.Funnel()
    with settings(spark, spark__haply__cells=5):
        result = hp.join(
            *(read_stream(spark, tmp_path / side) for side in "lr"), on, 0.25,
            strict=True, time="t", window=15, probability="none", suffixes=("_a", "_b"), invalid="drop", funnel=funnel,
        )  # fmt: skip
        assert result.columns == [
            "id_a", "t_a", "site_a", "code_a", "rank_a", "pos_a", *ODD_COLUMNS,
            "id_b", "t_b", "site_b", "code_b", "rank_b", "pos_b",
        ]  # fmt: skip
        with running(result, tmp_path, "conditions") as query:
            query.processAllAvailable()
            rows = spark.table("conditions").collect()
            await_that(lambda: funnel.to_dict()["kept"] == len(rows), "all pairs are counted")
    assert_pairs([(row["id_a"], row["id_b"]) for row in rows], wanted, *clouds, 1.5, 0.25, True)
    given = {row["id"]: row for row in spark.read.parquet(str(tmp_path / "l")).collect()}
    for row in rows:
        assert [row[name] for name in ODD_COLUMNS] == [given[row["id_a"]][name] for name in ODD_COLUMNS]
    counts = funnel.to_dict()
    assert (counts["null_left"], counts["null_right"], counts["invalid_right"]) == (1, 0, 0)
    assert counts["invalid_left"] == 4
    assert (counts["rows_left"], counts["rows_right"]) == ((ranks[0] > 0).sum() + 10, n + 4)
    assert (counts["late_left"], counts["late_right"]) == (0, 0), "a time that is no number does not move the clock"


@pytest.mark.long
def test_bad_rows_fail_the_query(spark, tmp_path):
    """With the column, the reason and an example; the same for dimensions that differ."""
    good = {"points": [0.0, 0.0], "probs": None, "dim": 2}
    reasons = {
        "nan": ({"points": [float("nan"), 0.0], "probs": None, "dim": 2}, "Column 'pos' of the right.*NaN or infinite"),
        "dimension": ({"points": [0.0, 0.0, 0.0], "probs": None, "dim": 3}, "Points differ in dimension.*3"),
    }
    for name, (bad, text) in reasons.items():
        for side, position in (("l", good), ("r", bad)):
            (tmp_path / name).mkdir(exist_ok=True)
            write_file(
                tmp_path / name / side, 0, pa.table({"id": [0], "t": [1.0], "pos": pa.array([position], POSITION)})
            )
        streams = [read_stream(spark, tmp_path / name / side) for side in "lr"]
        with (
            settings(spark, spark__haply__cells=1),
            running(hp.join(*streams, NEAR, 0.5, time="t", window=1), tmp_path, f"bad_{name}") as query,
            pytest.raises(StreamingQueryException, match=f"(?s){text}"),
        ):
            query.processAllAvailable()


def test_errors_when_a_join_of_streams_is_built(spark, tmp_path):
    table = pa.table(
        {
            "id": [0], "time": [1.0], "name": ["a"], "stamp": pa.array([0], pa.timestamp("us", "UTC")), "x": [1.5],
            "pos": samples([POINT]),
        }
    )  # fmt: skip
    write_file(tmp_path / "s", 0, table)
    stream, static = read_stream(spark, tmp_path / "s"), spark.read.parquet(str(tmp_path / "s"))
    fine = {"on": NEAR, "threshold": 0.5, "time": "time", "window": 10}
    for sides, changes, text in (
        ((stream, stream), {"time": None, "window": None}, "A join of streams has no window.*time and window"),
        ((stream, stream), {"window": None}, "only one of time and window"),
        ((stream, stream), {"time": None}, "only one of time and window"),
        ((stream, static), {"how": "outer"}, "how='outer' asks for rows of the right table without a partner"),
        ((static, stream), {"how": "left"}, "how='left' asks for rows of the left table without a partner"),
        ((stream, stream), {"window": -1}, "window is no length of time"),
        ((stream, stream), {"max_delay": -0.5}, "max_delay is no length of time"),
        ((stream, stream), {"window": float("nan")}, "window is no length of time"),
        ((stream, stream), {"window": "10 seconds"}, "window is a duration, and the times are numbers"),
        ((stream, stream), {"max_delay": "10 seconds"}, "max_delay is a duration, and the times are numbers"),
        ((stream, stream), {"window": "10 parsecs", "time": "stamp"}, "'10 parsecs' is not a window"),
        ((stream, stream), {"time": "tme"}, "no column in the left table called 'tme'.*did you mean 'time'"),
        ((stream, stream), {"time": ("time", "tiem")}, "in the right table called 'tiem'.*did you mean 'time'"),
        ((stream, stream), {"time": "name"}, "'name' of the left table is not a time.*string"),
        ((stream, stream), {"time": ("time", "stamp")}, "differ in kind"),
        ((stream, stream), {"time": ("time",)}, "one time column for each side"),
        ((stream, stream), {"self_key": "id"}, "no self_key"),
        ((stream, stream), {"threshold": 1.5}, "threshold is not a probability"),
        ((stream, stream), {"strategy": "sweep"}, "does not fit"),
    ):
        with pytest.raises(HaplyError, match=f"(?s){text}"):
            hp.join(*sides, **{**fine, **changes})
    provider = "spark.sql.streaming.stateStore.providerClass"
    hdfs = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    with (
        settings(spark, **{provider.replace(".", "__"): hdfs}),
        pytest.raises(HaplyError, match=f"(?s)needs Spark's RocksDB state store.*{provider} = .*RocksDB.*spark.conf"),
    ):
        hp.join(stream, stream, **fine)
    text = hp.plan_join(stream, stream, **fine, max_delay=3).explain(verbose=True)
    for part in ("streams", "distance", "<= 10", "up to 3 late", "P >= 0.5", "pieces"):
        assert part in text


def one_file(folder, side, number, ids, time, clouds, **columns):
    folder.mkdir(exist_ok=True)
    table = {"id": pa.array(ids, pa.int64()), "t": pa.array([float(time)] * len(ids)), "pos": samples(clouds)}
    write_file(folder / side, number, pa.table({**table, **columns}))


@pytest.mark.long
def test_rows_that_a_condition_leaves_out_move_the_clock(spark, tmp_path):
    """The left goes on, but none of its rows takes part: what waits for it on the right must go all the same."""
    for k in range(3):
        for side in "lr":
            kind = pa.array(["wanted" if k == 0 else "other"])
            one_file(tmp_path, side, k, [k], 10.0 * k, [oracle.cloud([[10.0, 0.0]])], kind=kind)
    streams = [read_stream(spark, tmp_path / side) for side in "lr"]
    on = "DISTANCE(left.pos, right.pos) <= 1 AND left.kind = 'wanted'"
    with (
        settings(spark, spark__haply__cells=1),
        running(hp.join(*streams, on, 0.5, time="t", window=2), tmp_path, "starved") as query,
    ):
        query.processAllAvailable()
        totals = [progress["stateOperators"][0]["numRowsTotal"] for progress in query.recentProgress]
    assert totals[-1] <= 4, totals  # an index, two pieces, and what the control cell knows


@pytest.mark.long
def test_gaussian_positions_as_from_tables_over_a_restart(spark, tmp_path):
    """Correlated errors on one side and points on the other, by key; the query is started again for the last file."""
    rng, n = np.random.default_rng(51), 90
    root = rng.normal(size=(n, 2, 2)) * 0.4
    covs = (root @ root.transpose(0, 2, 1)).reshape(n, 4).tolist()
    places = [rng.choice([-90.0, 0.0, 35.0], (n, 1)) + rng.uniform(0.0, 3.0, (n, 2)) for _ in "lr"]
    fixes = GaussianND(places[0], covs).to_arrow()
    for side, column in (("l", fixes), ("r", pa.array(places[1].tolist()))):
        table = pa.table({"id": np.arange(n), "t": np.arange(n) / 2.0, "key": np.arange(n) % 2, "pos": column})
        for k in range(3):
            write_file(tmp_path / side, k, table.slice(30 * k, 30))
    options = {
        "on": "DISTANCE(left.pos, right.pos) <= 1.5 AND left.key = right.key", "threshold": 0.2, "time": "t",
        "window": 9, "max_delay": 1,
    }  # fmt: skip
    waiting = [(tmp_path / side / "002.parquet").rename(tmp_path / f"{side}-last") for side in "lr"]
    with settings(spark, spark__haply__cells=5):
        streams = [read_stream(spark, tmp_path / side) for side in "lr"]
        for start in range(2):
            if start:
                for path in waiting:
                    path.rename(tmp_path / path.name[0] / "002.parquet")
            plan = hp.plan_join(*streams, **options)
            writer = plan.run().writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.start(str(tmp_path / "out"))
            query.processAllAvailable()
            query.stop()
        found = pairs_in(spark.read.parquet(str(tmp_path / "out")))
        wanted = pairs_in(hp.join(*(spark.read.parquet(str(tmp_path / side)) for side in "lr"), **options))
    assert sorted(found) == sorted(wanted)
    assert len(wanted) > 30
    assert any(i < 60 <= j for i, j, _ in wanted), "with rows that were remembered over the restart"
    text = plan.explain(verbose=True)
    for part in ("streams", "left.pos (gaussian_nd), right.pos (samples)", "standard deviations", "width 24", "disc"):
        assert part in text
    with pytest.raises(HaplyError, match=r"Without a threshold every pair is possible"):
        hp.join(*streams, **{**options, "threshold": None})


@pytest.mark.long
def test_gaussian_positions_at_uncertain_times(spark, tmp_path):
    """The chance of being near in time and that of being near in place multiply, on streams as on tables."""
    rng, n = np.random.default_rng(52), 24
    for side in "lr":
        positions = sky_positions(10.0 + rng.uniform(0, 1e-3, n), 20.0 + rng.uniform(0, 1e-3, n), 0.6, 0.4, 0.5)
        times = Uniform(np.arange(n) - 0.5, np.arange(n) + rng.uniform(0.0, 2.0, n))
        write_file(
            tmp_path / side, 0, pa.table({"id": np.arange(n), "t": times.to_arrow(), "pos": positions.to_arrow()})
        )
    options = {"on": "DISTANCE(left.pos, right.pos) <= 1", "threshold": 0.1, "time": "t", "window": 4}
    with settings(spark, spark__haply__cells=2):
        result = hp.join(*(read_stream(spark, tmp_path / side) for side in "lr"), **options)
        with running(result, tmp_path, "uncertain") as query:
            query.processAllAvailable()
            found = sorted(pairs_in(spark.table("uncertain")))
        wanted = sorted(pairs_in(hp.join(*(spark.read.parquet(str(tmp_path / side)) for side in "lr"), **options)))
    assert [pair[:2] for pair in found] == [pair[:2] for pair in wanted]
    assert [pair[2] for pair in found] == pytest.approx([pair[2] for pair in wanted], abs=1e-10)
    assert len(found) > 5


def test_a_stream_with_far_more_partitions_than_cells_is_warned_of(spark, tmp_path):
    """Spark's default of 200 makes every micro-batch wait for 200 tasks, and the checkpoint keeps it."""
    write_sides(tmp_path, [random_clouds(np.random.default_rng(1), 4, 2)] * 2, [np.arange(4.0)] * 2, files=1)
    left, right = (read_stream(spark, tmp_path / side) for side in "lr")

    def plan():
        hp.plan_join(left, right, NEAR, THRESHOLD, time="t", window=WINDOW)

    with settings(spark, spark__sql__shuffle__partitions=200), pytest.warns(hp.HaplyWarning) as caught:
        plan()
    (warning,) = caught
    assert "will wait for 200 tasks, of which at most 16 have rows" in str(warning.message)
    assert 'Hint: before it, spark.conf.set("spark.sql.shuffle.partitions", n)' in str(warning.message)
    assert warning.filename == __file__
    with settings(spark, spark__sql__shuffle__partitions=32), warnings.catch_warnings():
        warnings.simplefilter("error", hp.HaplyWarning)
        plan()
