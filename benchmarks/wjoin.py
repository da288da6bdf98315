"""``bench wjoin``: streams of keyed events, one of each combined where all are within a window of each other.

Every engine runs on one thread in this process, from arrays or frames of it to arrays or frames of ids. The peers join
whole streams at once, one stream after the other, in three formulations: DuckDB on the key, with the windows of every
pair as conditions (``duckdb``); DuckDB and Polars on the key and on buckets of time (``buckets``), in which every later
stream is repeated to the buckets that it can meet, and the growing side is not. All windows are equal, so that a test
of the earliest and the latest time tests all pairs, and the closure adds nothing. Buckets of half a window, one window
and two windows were tried: two were best with six streams, and one was slightly better for DuckDB with three and four.
Repeating the growing side instead was as fast with three and four streams, and slower with six.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import wjoin_figures as figures
from benchmarks.measure import (
    OURS,
    TURN,
    Answer,
    Report,
    Result,
    Tell,
    check_same,
    circumstances,
    needs,
    ranked,
    take_turns,
)
from benchmarks.wjoin_figures import NAMES, Arrivals, Scale
from haply.joins import WindowJoin, join_windows
from haply.joins.operators.window import uniform_windows

STREAMED, KEYED, DUCK, POLARS = "haply one by one", "duckdb", "duckdb buckets", "polars buckets"
TARGET = 10.0
_BITS = 21
"""Three ids go into one integer when answers are compared."""


@dataclass(frozen=True)
class Settings:
    """The workload: events at random times, with the same rate in all streams and equally likely keys."""

    streams: tuple[int, ...] = (3, 4, 5, 6)
    events: int = 50_000  # of each stream
    rate: float = 10.0  # events per second of each stream
    keys: int = 400
    window: float = 60.0
    repetitions: int = 3
    seed: int = 3
    scale: Scale = field(default_factory=Scale)


QUICK = Settings(streams=(3, 4), events=5_000, repetitions=2, scale=figures.QUICK)


@dataclass(frozen=True)
class Stream:
    """Events of one stream in the order of time."""

    id: np.ndarray
    time: np.ndarray
    key: np.ndarray


def make_streams(settings: Settings, count: int) -> list[Stream]:
    """Make ``count`` streams with the same number of events."""
    random = np.random.default_rng(settings.seed)
    events = settings.events
    return [
        Stream(
            np.arange(events),
            np.cumsum(random.exponential(1.0 / settings.rate, events)),
            random.integers(0, settings.keys, events),
        )
        for _ in range(count)
    ]


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), tell)


def measure(settings: Settings, tell: Tell) -> Report:
    """Measure the comparison, then the experiments."""
    results = [result for count in settings.streams for result in compared(settings, count, tell)]
    drawn = [make(settings.scale, tell) for make in figures.EXPERIMENTS]
    title = f"Streams of {settings.events:,} keyed events, combined within {settings.window:g} s, one thread"
    config = {
        **asdict(settings),
        "formulations": {
            OURS: "join_windows: whole streams at once; from arrays to arrays of ids",
            STREAMED: "WindowJoin: streams merged by time, event after event, backward",
            KEYED: "hash joins on the key, the windows of all pairs as conditions",
            DUCK: "hash joins on the key and buckets of two windows, earliest and latest time tested",
            POLARS: "the same with lazy frames",
        },
        "targets": dict.fromkeys((KEYED, DUCK, POLARS), TARGET),
        "polars_threads": needs("polars").thread_pool_size(),
        "notes": [f"best of {settings.repetitions} runs; pairs: combinations of one event of each stream"],
        **circumstances("duckdb", "polars"),
    }
    return Report("wjoin", title, config, results, figures=drawn)


def compared(settings: Settings, count: int, tell: Tell) -> list[Result]:
    """Compare haply with DuckDB and Polars on ``count`` streams."""
    streams = make_streams(settings, count)
    duckdb, polars = DuckWindows(streams, settings.window), PolarsWindows(streams, settings.window)
    job = f"{count} streams"
    engines: dict[str, Callable[[], Any]] = {
        OURS: lambda: haply_windows(streams, settings.window),
        STREAMED: lambda: haply_stream(streams, settings.window),
        KEYED: duckdb.keyed,
        DUCK: duckdb.buckets,
        POLARS: polars.buckets,
    }
    answers = {}
    for name, engine in engines.items():
        tell(f"{job}: first run of {name}")
        answers[name] = packed(columns_of(engine()))
    check_same(job, answers)
    found = {name: len(answer.left) for name, answer in answers.items()}
    return ranked(job, take_turns(job, engines, settings.repetitions, tell, TURN), found)


def haply_windows(streams: Sequence[Stream], window: float) -> dict[str, np.ndarray]:
    """Join with haply, whole streams at once like the others."""
    named = {
        name: {"id": stream.id, "time": stream.time, "key": stream.key}
        for name, stream in zip(NAMES, streams, strict=False)
    }
    return join_windows(uniform_windows(named, window), named).ids


def haply_stream(streams: Sequence[Stream], window: float) -> dict[str, np.ndarray]:
    """Join with haply, one event after the other as in a stream; the time includes merging the streams."""
    arrivals = Arrivals.merged([(stream.time, stream.key) for stream in streams])
    return WindowJoin(uniform_windows(NAMES[: len(streams)], window)).push_many(arrivals.batch()).ids


class DuckWindows:
    """Joins with DuckDB, on the same arrays."""

    def __init__(self, streams: Sequence[Stream], window: float) -> None:
        self.window, self.names = window, NAMES[: len(streams)]
        self.connection = needs("duckdb").connect()
        self.connection.execute("SET threads = 1; SET enable_progress_bar = false")
        for name, stream in zip(self.names, streams, strict=True):
            self.connection.register(name, pa.table(stream.__dict__))

    def keyed(self) -> pa.Table:
        """Join by key alone; DuckDB may choose the order of the streams, which are all alike."""
        window = repr(self.window)
        text = f"SELECT {', '.join(f'{name}.id AS {name}' for name in self.names)} FROM {self.names[0]}"
        for number, name in enumerate(self.names[1:], 1):
            conditions = [
                f"{name}.time BETWEEN {other}.time - {window} AND {other}.time + {window}"
                for other in self.names[:number]
            ]
            text += f" JOIN {name} ON {name}.key = {self.names[0]}.key AND {' AND '.join(conditions)}"
        return self.connection.sql(text).to_arrow_table()

    def buckets(self) -> pa.Table:
        """Join by key and bucket of the first stream's time."""
        window, width = repr(self.window), repr(2.0 * self.window)
        first, *later = self.names
        parts = [
            f"""joined_{first} AS (
                SELECT id AS {first}, time AS low, time AS high, key, CAST(floor(time / {width}) AS BIGINT) AS bucket
                FROM {first})"""
        ]
        before, chosen = first, first
        for name in later:
            parts.append(f"""spread_{name} AS (
                SELECT id, time, key, unnest(range(
                    CAST(floor((time - {window}) / {width}) AS BIGINT),
                    CAST(floor((time + {window}) / {width}) AS BIGINT) + 1
                )) AS bucket FROM {name})""")
            parts.append(f"""joined_{name} AS (
                SELECT {chosen}, s.id AS {name}, least(low, s.time) AS low, greatest(high, s.time) AS high, j.key,
                    j.bucket
                FROM joined_{before} j JOIN spread_{name} s ON s.key = j.key AND s.bucket = j.bucket
                WHERE s.time >= high - {window} AND s.time <= low + {window})""")
            before, chosen = name, f"{chosen}, {name}"
        return self.connection.sql(f"WITH {', '.join(parts)} SELECT {chosen} FROM joined_{before}").to_arrow_table()


class PolarsWindows:
    """Joins with Polars, on the same arrays."""

    def __init__(self, streams: Sequence[Stream], window: float) -> None:
        # Polars reads this at its first import; the configuration shows how many threads it really has.
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        self.pl = needs("polars")
        self.window, self.names = window, NAMES[: len(streams)]
        self.frames = {
            name: self.pl.DataFrame(stream.__dict__) for name, stream in zip(self.names, streams, strict=True)
        }

    def buckets(self) -> Any:
        """Join by key and bucket of the first stream's time."""
        pl, window, names = self.pl, self.window, self.names
        time, low, high = pl.col("time"), pl.col("low"), pl.col("high")

        def bucket(position: Any) -> Any:
            return (position / (2.0 * window)).floor().cast(pl.Int32)

        joined = self.frames[names[0]].lazy()
        joined = joined.select("key", pl.col("id").alias(names[0]), low=time, high=time, bucket=bucket(time))
        for name in names[1:]:
            reached = pl.int_ranges(bucket(time - window), bucket(time + window) + 1, dtype=pl.Int32)
            spread = self.frames[name].lazy().select("key", "time", pl.col("id").alias(name), bucket=reached)
            joined = (
                joined.join(spread.explode("bucket"), on=["key", "bucket"])
                .filter((time >= high - window) & (time <= low + window))
                .with_columns(low=pl.min_horizontal("low", "time"), high=pl.max_horizontal("high", "time"))
                .drop("time")
            )
        return joined.select(*names).collect()


def columns_of(found: Any) -> list[np.ndarray]:
    """Return the ids of the combinations, by stream, from any engine's answer."""
    columns = found.values() if isinstance(found, dict) else (found[name] for name in map(str, _names(found)))
    return [column if isinstance(column, np.ndarray) else column.to_numpy() for column in columns]


def _names(found: Any) -> Sequence[str]:
    return found.column_names if isinstance(found, pa.Table) else found.columns


def packed(ids: Sequence[np.ndarray]) -> Answer:
    """Return combinations of up to six streams as pairs of integers, with three ids in each."""
    halves = []
    for begin in (0, 3):
        together = np.zeros(len(ids[0]), np.int64)
        for column in ids[begin : begin + 3]:
            assert not len(column) or int(column.max()) < 1 << _BITS
            together = (together << _BITS) | column
        halves.append(together)
    return Answer(halves[0], halves[1])
