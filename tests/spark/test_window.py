"""Event times and windows: how they are read, joins of tables in a window against brute force, the streams' clock."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import haply as hp
import oracle
import oracle_distance
from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.streaming.worker import Clock
from haply.engines.spark.times import time_number
from haply.errors import HaplyError
from haply.planning.times import TimeWindow, length_of, time_window
from stream_kit import read_stream, running, write_file

SECOND = 1_000_000
BEGIN = datetime(2024, 3, 10, 1, 58, tzinfo=UTC)  # two minutes before New York's clocks change, for local times


@contextmanager
def time_zone(spark, name):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


# -- lengths of time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "microseconds"),
    [
        ("10 seconds", 10 * SECOND),
        ("1 second", SECOND),
        ("  2 Minutes ", 120 * SECOND),
        ("1hour", 3600 * SECOND),
        ("3 days", 3 * 86_400 * SECOND),
        ("1 week", 604_800 * SECOND),
        ("250 milliseconds", 250_000),
        ("7 microseconds", 7),
        ("0.5 seconds", SECOND // 2),
        ("0.1 seconds", 100_000),
        ("0 seconds", 0),
        ("1.5 microseconds", 1),
        ("0.29 seconds", 290_000),
        (timedelta(minutes=2, microseconds=5), 120 * SECOND + 5),
        (timedelta(0), 0),
        (10, 10 * SECOND),
        (0.25, SECOND // 4),
        (0.29, 290_000),
        (1.5e-6, 1),
        (0.1, 100_000),
        (0, 0),
    ],
)
def test_lengths_over_timestamps(value, microseconds):
    """Durations, or numbers of seconds; whole microseconds, as timestamps are."""
    found = length_of("window", value, stamps=True)
    assert found == microseconds
    assert isinstance(found, int)


@pytest.mark.parametrize(("value", "number"), [(3, 3.0), (0, 0.0), (0.5, 0.5), (1e300, 1e300), (np.float64(2), 2.0)])
def test_lengths_over_numbers(value, number):
    assert length_of("window", value, stamps=False) == number


@pytest.mark.parametrize(
    "value", ["", "ten seconds", "10", "10 parsecs", "-5 seconds", "5 seconds ago", "1 month", "second", "1e3 seconds"]
)
def test_what_is_not_a_duration(value):
    with pytest.raises(HaplyError, match=r"is not a max_delay.*a duration.*as in"):
        length_of("max_delay", value, stamps=True)


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, True, None, [1], timedelta(seconds=-1)])
@pytest.mark.parametrize("stamps", [True, False])
def test_what_is_not_a_length(value, stamps):
    with pytest.raises(HaplyError, match="window"):
        length_of("window", value, stamps)


@pytest.mark.parametrize("value", ["10 seconds", timedelta(seconds=1)])
def test_a_duration_needs_timestamps(value):
    with pytest.raises(HaplyError, match="The window is a duration, and the times are numbers"):
        length_of("window", value, stamps=False)


# -- time columns ------------------------------------------------------------------------------------------------------


def test_time_columns_are_read(spark):
    left = spark.createDataFrame([], "Time double, stamp timestamp, name string, pos struct<lo:double,hi:double>")
    right = spark.createDataFrame([], "time int, local timestamp_ntz, day date")
    left, right = SparkFrame(left), SparkFrame(right)
    assert time_window(left, right, None, None, 0) is None
    assert time_window(left, right, "time", 5, 2) == TimeWindow("Time", "time", 5.0, 2.0, stamps=False)
    found = time_window(left, left, "stamp", "5 seconds", "1 minute")
    assert found == TimeWindow("stamp", "stamp", 5 * SECOND, 60 * SECOND, stamps=True)
    assert time_window(left, left, ["stamp", "stamp"], 5, timedelta(minutes=1)) == found
    local = time_window(right, right, "local", "5 seconds", 0)
    assert local == TimeWindow("local", "local", 5 * SECOND, 0, stamps=True, local=True)
    uncertain = time_window(left, right, ("pos", "time"), "2 minutes", 3)
    assert (uncertain.length, uncertain.max_delay, uncertain.uncertain) == (120.0, 3.0, (True, False)), "in seconds"
    for time, window, delay, text in (
        (None, None, 3, "max_delay without a window"),
        ("time", None, 0, "only one of time and window.*Found time"),
        (None, 5, 0, "only one of time and window.*Found window"),
        (("time",), 5, 0, "one time column for each side"),
        (("time", "time", "time"), 5, 0, "one time column for each side"),
        ("tiem", 5, 0, "in the left table called 'tiem'.*did you mean 'Time'"),
        (("time", "tme"), 5, 0, "in the right table called 'tme'.*did you mean 'time'"),
        (("name", "time"), 5, 0, "'name' of the left table is not a time.*or an uncertain value.*string"),
        (("time", "day"), 5, 0, "'day' of the right table is not a time.*date"),
        (("stamp", "time"), 5, 0, "differ in kind.*a number and timestamp"),
        (("stamp", "local"), 5, 0, "differ in kind.*timestamp and timestamp_ntz"),
        ("time", -5, 0, "window is no length"),
        (5, 5, 0, "one time column for each side"),
        ((5, "time"), 5, 0, "one time column for each side"),
        ("time", 5, -1, "max_delay is no length"),
        ("time", 5, "1 second", "max_delay is a duration"),
    ):
        with pytest.raises(HaplyError, match=f"(?s){text}"):
            time_window(left, right, time, window, delay)


def test_times_as_numbers_are_exact(spark):
    window = TimeWindow("a", "b", 0.0, 0.0, stamps=True)
    moments = [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2024, 3, 10, 7, 0, 0, 1, UTC),
        datetime(1, 1, 1, tzinfo=UTC), datetime(2255, 6, 5, 23, 47, 34, 740_991, UTC),
    ]  # fmt: skip
    stamps = spark.createDataFrame([(moment,) for moment in moments], "`odd `` name` timestamp")
    found = [row[0] for row in stamps.select(F.expr(time_number(window, "odd ` name", "t"))).collect()]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert found == [(moment - epoch) // timedelta(microseconds=1) for moment in moments]
    local = spark.createDataFrame([(moment.replace(tzinfo=None),) for moment in moments], "t timestamp_ntz")
    without_zone = replace(window, local=True)
    with time_zone(spark, "America/New_York"):
        assert [row[0] for row in local.select(F.expr(time_number(without_zone, "t", "t"))).collect()] == found
        assert [row[0] for row in stamps.select(F.expr(time_number(window, "odd ` name", "t"))).collect()] == found
    plain = TimeWindow("a", "b", 0.0, 0.0, stamps=False)
    row = (2**53, 0.1, Decimal("0.25"), -7, None)
    numbers = spark.createDataFrame([row], "a long, b double, c decimal(9, 2), d tinyint, e double")
    assert numbers.select(*(F.expr(time_number(plain, name, name)) for name in "abcde")).collect()[0] == (
        2.0**53, 0.1, 0.25, -7.0, None,
    )  # fmt: skip


# -- tables ------------------------------------------------------------------------------------------------------------


def collect(result):
    """Pairs with their probabilities, refusing a doubled pair."""
    rows = [(row["id_left"], row["id_right"], row["probability"]) for row in result.collect()]
    counts = Counter((i, j) for i, j, _ in rows)
    assert not counts or max(counts.values()) == 1, "a pair was doubled"
    return {(i, j): p for i, j, p in rows}


@pytest.mark.long
@pytest.mark.parametrize("window", [0, 2.5])
def test_distances_in_a_window_of_numbers(spark, window):
    """Many differences are just the window, which is closed; rows without a time match nothing."""
    rng = np.random.default_rng(1)
    n = 40
    clouds = [
        [
            oracle_distance.random_cloud(rng, 2, int(rng.integers(1, 6)), "gaussian", spread=2.0, weighted=k % 3 == 0)
            for k in range(n)
        ]
        for _ in range(2)
    ]
    times = [[None if k % 9 == 0 else float(rng.integers(-20, 20)) / 2 for k in range(n)] for _ in range(2)]
    frames = [
        spark.createDataFrame(
            [
                (k, time, (cloud.points.ravel().tolist(), cloud.float_weights, 2))
                for k, (cloud, time) in enumerate(zip(*side, strict=True))
            ],
            f"id long, {name} double, pos struct<points:array<double>,probs:array<double>,dim:int>",
        )
        for side, name in zip(zip(clouds, times, strict=True), ("t", "when"), strict=True)
    ]
    funnel = hp.Funnel()
    on = "DISTANCE(left.pos, right.pos) <= 1.5"
    found = collect(hp.join(*frames, on, 0.3, time=("t", "when"), window=window, funnel=funnel))
    wanted = {
        (i, j): oracle_distance.probability(clouds[0][i], clouds[1][j], 1.5)
        for i in range(n)
        for j in range(n)
        if None not in (times[0][i], times[1][j])
        and abs(times[0][i] - times[1][j]) <= window
        and oracle_distance.keeps(clouds[0][i], clouds[1][j], 1.5, 0.3)
    }
    assert found.keys() == wanted.keys()
    assert len(found) > 5
    assert all(abs(p - float(wanted[pair])) < 1e-12 for pair, p in found.items())
    if window:
        edge = [pair for pair in found if abs(times[0][pair[0]] - times[1][pair[1]]) == window]
        assert edge, "no pair is as far apart as the window"
    assert funnel.to_dict()["kept"] == len(found)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("kind", "window", "zone"),
    [
        ("timestamp", "90 seconds", "UTC"),
        ("timestamp_ntz", 90, "America/New_York"),
    ],
)
def test_gaussian_band_in_a_window_of_timestamps(spark, kind, window, zone):
    """To the microsecond: differences are the window, or one more or less."""
    rng = np.random.default_rng(2)
    n = 50
    values = [[oracle.Normal(float(rng.normal(0, 2)), 0.4) for _ in range(n)] for _ in range(2)]
    offsets = [
        [timedelta(seconds=90 * int(rng.integers(0, 4)), microseconds=int(rng.integers(-1, 2))) for _ in range(n)]
        for _ in range(2)
    ]
    frames = []
    for side in (0, 1):
        rows = [
            (k, (BEGIN + offset).replace(tzinfo=None if kind.endswith("ntz") else UTC), (value.mean, value.sd))
            for k, (value, offset) in enumerate(zip(values[side], offsets[side], strict=True))
        ]
        frames.append(spark.createDataFrame(rows, f"id long, t {kind}, x struct<mean:double,sd:double>"))
    probabilities = oracle.brute_force_probabilities(*values, -1.0, 1.0)
    near = set(oracle.kept_pairs(probabilities, 0.6))
    wanted = {(i, j) for i, j in near if abs(offsets[0][i] - offsets[1][j]) <= timedelta(seconds=90)}
    assert 0 < len(wanted) < len(near)
    edges = Counter(abs(offsets[0][i] - offsets[1][j]) - timedelta(seconds=90) for i, j in near)
    assert {timedelta(microseconds=k) for k in (-1, 0, 1)} <= edges.keys()
    with time_zone(spark, zone):
        found = collect(hp.join(*frames, "abs(left.x - right.x) <= 1", 0.6, time="t", window=window))
    assert found.keys() == wanted
    assert all(abs(p - float(probabilities[pair])) < 1e-9 for pair, p in found.items())


def test_certain_joins_and_self_joins_have_windows_too(spark):
    table = spark.range(30).selectExpr("id", "id % 3 AS k", "CAST(id AS INT) AS t").withColumn("x", F.col("id") * 0.5)
    found = collect(hp.join(table, table, "left.k = right.k", time="t", window=6))
    assert found.keys() == {(i, j) for i in range(30) for j in range(30) if (i - j) % 3 == 0 and abs(i - j) <= 6}
    wide = table.withColumn("x", hp.gaussian("x", F.lit(50.0)))
    found = collect(hp.join(wide, wide, "abs(left.x - right.x) <= 1", 0.9, time="t", window=6, self_key="id"))
    assert found == {(i, i): 1.0 for i in range(30)}


LARGEST = 2**53
LAST = datetime(1970, 1, 1) + timedelta(microseconds=LARGEST)
"""The last microsecond up to which all are doubles."""


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("long", [LARGEST, LARGEST - 1, LARGEST - 3, -LARGEST, -7, None], 1_700_000_000_000_000_100),
        ("double", [float(LARGEST), LARGEST - 1.0, LARGEST - 3.0, math.nan, math.inf, None], 1.7e18),
        ("decimal(20, 0)", [*map(Decimal, (LARGEST, LARGEST - 1, LARGEST - 3, -LARGEST)), None], Decimal(2**63)),
        ("timestamp", [LAST, LAST - timedelta(0, 0, 1), LAST - timedelta(0, 0, 3), datetime(9999, 12, 30), None], None),
        ("timestamp_ntz", [LAST, LAST - timedelta(0, 0, 1), LAST - timedelta(0, 0, 3), datetime(2, 1, 1), None], None),
    ],
)
def test_times_of_each_type_are_exact_or_refused(spark, tmp_path, kind, good, bad):
    """In joins of tables and of streams, in joins of many and in SQL: the error names column, value and what helps."""
    stamped, shown = kind.startswith("timestamp"), r"1\.7E18|1700000000000000100|9223372036854775808"
    if stamped:
        bad, shown = datetime(9998, 1, 1, 0, 0, 0, 1), "9998-01-01 00:00:00.000001"
    if kind == "timestamp":
        good, bad = [time and time.replace(tzinfo=UTC) for time in good], bad.replace(tzinfo=UTC)
    one = "1 microsecond" if stamped else 1
    table = spark.createDataFrame(
        [(k, time, 0.0, 7) for k, time in enumerate(good)], f"id long, `a t` {kind}, x double, k int"
    )
    wrong = spark.createDataFrame([(9, bad, 0.0, 7)], table.schema)

    def queries(frame):
        yield hp.join(frame, table, "abs(left.x - right.x) <= 1", time="a t", window=one)
        yield hp.join(frame, table, "left.k = right.k", time="a t", window=one)
        yield hp.window_join({"id_left": frame, "id_right": table}, {("id_left", "id_right"): one}, key="k", time="a t")
        wanted = f"a.k = b.k AND WINDOW(a, b) = {'0.000001' if stamped else 1}"
        text = f"SELECT a.id AS id_left, b.id AS id_right FROM a, b WHERE {wanted}"
        yield hp.sql(text, spark=spark, time="a t", a=frame, b=table)

    with time_zone(spark, "UTC"):
        for query in queries(table):
            names = [name for name in query.columns if name.startswith("id_left") or name.startswith("id_right")]
            names = [name for name in names if name in ("id_left", "id_right") or name.endswith("_id")]
            found = sorted(tuple(row) for row in query.select(*names).collect())
            same = [(k, k) for k, time in enumerate(good) if k not in (0, 1) and time is not None]
            same = [
                pair for pair in same if not (isinstance(good[pair[0]], float) and not math.isfinite(good[pair[0]]))
            ]
            assert found == sorted([(0, 0), (0, 1), (1, 0), (1, 1), *same])
        for query in queries(wrong):
            with pytest.raises(
                Exception, match=rf"(?s)'a t' is too large.*Found ({shown}).*subtract an epoch.*timestamp"
            ):
                query.collect()


def test_a_stream_refuses_times_that_are_too_large(spark, tmp_path):
    rows = pa.table({"id": [1], "t": [1_700_000_000_000_000_100], "x": [0.0]})
    for side in "lr":
        write_file(tmp_path / side, 0, rows)
    streams = [read_stream(spark, tmp_path / side) for side in "lr"]
    result = hp.join(*streams, "abs(left.x - right.x) <= 1", time="t", window=1)
    refused = pytest.raises(Exception, match=r"(?s)'t' is too large.*1700000000000000100.*subtract an epoch")
    with running(result, tmp_path, "too_large") as query, refused:
        query.processAllAvailable()


def test_local_timestamps_know_no_time_zone(spark):
    rows = [
        spark.createDataFrame([(h, datetime(2024, 3, 10, h, 30), 0.0)], "id int, t timestamp_ntz, x double")
        for h in (1, 3)
    ]
    with time_zone(spark, "America/New_York"):
        assert not collect(hp.join(*rows, "abs(left.x - right.x) <= 1", time="t", window="1 hour"))


# -- the clock of streams ----------------------------------------------------------------------------------------------


def watermark(clock, newest, max_delay):
    """What Spark makes of the newest row: whole microseconds, cut to milliseconds, less the delay."""
    stamp = int(float(clock.seconds(np.array([newest]))[0]) * 1e6)
    return stamp // 1000 - clock.delay(max_delay)


def clocks(count, seed):
    """Clocks of all scales with a time each that they can show."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        window, max_delay = 10.0 ** rng.uniform(-6, 9), 0.0
        if rng.random() < 0.7:
            max_delay = window * 10.0 ** rng.uniform(-4, 4)
        span = window + max_delay
        largest = float(rng.choice([1e3, 1e9, 8e13]))
        newest = float(rng.choice([-1, 1])) * span * 10.0 ** rng.uniform(-4, math.log10(largest))
        yield Clock.of(False, span), max(newest, -9e11 * span), window, max_delay


def test_the_clock_of_numbers_is_never_ahead():
    """A row that is as late as allowed is not late: its time is not below what the clock shows."""
    for clock, newest, _, max_delay in clocks(5000, 3):
        shown = clock.time(watermark(clock, newest, max_delay))
        assert Fraction(shown) <= Fraction(newest) - Fraction(max_delay)


def test_the_clock_of_numbers_follows():
    """It lags by a small part of window and delay together, or what is old would never be forgotten."""
    for clock, newest, window, max_delay in clocks(5000, 4):
        shown = clock.time(watermark(clock, newest, max_delay))
        assert newest - max_delay - shown <= 0.1 * (window + max_delay) + 4 * np.spacing(abs(newest))


@pytest.mark.parametrize("stamps", [True, False])
def test_the_clock_never_runs_backwards(stamps):
    rng = np.random.default_rng(5)
    for span in (0.0, 1.0, 1e3, 1e7, 3.6e9):
        clock = Clock.of(stamps, span)
        times = np.sort(
            np.concatenate([rng.uniform(-1e3, 1e3, 200), rng.uniform(-1e15, 1e15, 200), [0.0, -1e18, 1e18]])
        )
        seconds = clock.seconds(times)
        assert (np.diff(seconds) >= 0).all()
        assert seconds.min() >= 0
        assert int(seconds.max() * 1e6) < 2**63, "a timestamp"
        shown = [clock.time(milliseconds) for milliseconds in range(-5, 3000, 7)]
        assert shown == sorted(shown)
        assert shown[0] == -math.inf


def test_the_clock_of_timestamps():
    rng = np.random.default_rng(6)
    clock = Clock.of(True, 5.0 * SECOND)
    for newest in [0.0, 1.0, 999.0, 1.7e15 + 1, *np.floor(10.0 ** rng.uniform(0, 17, 2000)).tolist()]:
        for delay in (0, 1, 999, SECOND, 86_400 * SECOND):
            shown = clock.time(watermark(clock, newest, delay))
            assert shown <= newest - delay
            if newest > delay + 10_000:
                assert newest - delay - shown <= 3000, "three milliseconds"


def test_a_delay_is_never_too_short():
    rng = np.random.default_rng(7)
    for _ in range(2000):
        span = 10.0 ** rng.uniform(-6, 12)
        length = span * float(rng.choice([0.0, rng.uniform(), 1.0]))
        clock = Clock.of(False, span)
        assert Fraction(clock.delay(length)) >= Fraction(length) * Fraction(clock.scale) * 1000
        assert clock.delay(length) <= 102, "window and delay are a tenth of a second"
    assert Clock.of(True, 1.0).delay(1_500) == 3
    assert Clock.of(True, 1.0).delay(0) == 1


@pytest.mark.parametrize("newest", [-1.1e9, -1e10, -1e13, -1.0001e13, -1e15, -1e300, 1e15, 1e300])
def test_beyond_its_ends_the_clock_is_not_ahead(newest):
    for delay in (0.0, 1e-3, 5.0):
        clock = Clock.of(False, 10.0 + delay)
        for time in (newest, np.nextafter(newest, -np.inf), newest * 1.01, newest * 0.99):
            assert clock.time(watermark(clock, time, delay)) <= time - delay


@pytest.mark.parametrize(("newest", "window"), [(1.7e9, 0.1), (1.7e12, 100.0), (1.7e18, 1e6), (-1e9, 0.01)])
def test_the_clock_goes_on_for_a_small_window(newest, window):
    """Seconds since 1970 with a tenth of a second, milliseconds with 100: the clock must move, or state only grows."""
    clock = Clock.of(False, window)
    assert clock.time(watermark(clock, newest + 2 * window, 0.0)) > newest + window


def test_before_1970_the_clock_has_not_begun():
    clock = Clock.of(True, 10.0 * SECOND)
    for time in (-1e15, -1e6, -1.0, 0.0):
        assert clock.time(watermark(clock, time, 0.0)) == -math.inf
