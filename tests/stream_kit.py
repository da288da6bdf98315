"""What tests of streams share: data with an answer, files that are read as streams, and a process to be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import oracle_distance as oracle

EPS, THRESHOLD, WINDOW, DELAY = 1.5, 0.1, 40.0, 6.0
PATIENCE = 300.0


POSITION = pa.struct([("points", pa.list_(pa.float64())), ("probs", pa.list_(pa.float64())), ("dim", pa.int32())])
KINDS = list(oracle.KINDS)
POINT = oracle.cloud([[0.0, 0.0]])


def samples(clouds):
    """Clouds of the oracle as a column of samples; they may differ in dimension."""
    rows = [
        {"points": cloud.points.ravel().tolist(), "probs": cloud.float_weights, "dim": cloud.dim} for cloud in clouds
    ]
    return pa.array(rows, POSITION)


def random_clouds(rng, n, dim, weighted=False, spread=4.0, size=1.0, most=8):
    return [
        oracle.random_cloud(
            rng, dim, int(rng.integers(1, most)), str(rng.choice(KINDS)), weighted=weighted, size=size, spread=spread
        )
        for _ in range(n)
    ]


def assert_pairs(found, wanted, lefts, rights, eps, threshold, strict=False):
    """Each pair once, with the oracle's probability; only a pair that rounding may decide is free."""
    counts = Counter((i, j) for i, j, *_ in found)
    doubled = [pair for pair, n in counts.items() if n > 1]
    assert not doubled, f"doubled: {doubled[:5]}"
    free = {
        (i, j)
        for i, j in set(counts) ^ set(wanted)
        if oracle.borderline(lefts[i], rights[j], eps, threshold, strict, margin=1e-11)
    }
    assert not set(wanted) - set(counts) - free, f"lost: {sorted(set(wanted) - set(counts) - free)[:5]}"
    assert not set(counts) - set(wanted) - free, f"invented: {sorted(set(counts) - set(wanted) - free)[:5]}"
    for i, j, *p in found:
        if p:
            assert abs(p[0] - float(oracle.probability(lefts[i], rights[j], eps))) < 1e-12


@contextmanager
def settings(spark, **values):
    """Spark settings for a moment; names with two underscores for each dot."""
    names = {name.replace("__", "."): value for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, str(value))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def await_that(condition, what):
    """Waits for a condition that must come to hold."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"not after {PATIENCE} seconds: {what}"
        time.sleep(0.02)


def write_file(folder, number, table):
    """A file of a stream: files are read one a batch, in the order of their times."""
    folder.mkdir(exist_ok=True)
    draft = folder / f".{number:03}.draft"
    pq.write_table(table, draft)
    os.utime(draft, (1e9 + number, 1e9 + number))
    draft.rename(folder / f"{number:03}.parquet")


def read_stream(spark, folder, like=None):
    """A stream of the files in a folder, which may still be empty if another folder has files like them."""
    schema = spark.read.parquet(str(next((like or folder).glob("*.parquet")))).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@contextmanager
def running(result, tmp_path, name):
    """A query into a table of that name, with a checkpoint of that name."""
    writer = result.writeStream.format("memory").queryName(name).outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{name}")).start()
    try:
        yield query
    finally:
        query.stop()
        result.sparkSession.catalog.dropTempView(name)


def pairs_in(frame, more=("probability",)):
    return [tuple(row) for row in frame.select("id_left", "id_right", *more).collect()]


def two_places(rng, n, places):
    """Small clouds at places far apart, and objects that are half at one and half at another: seen in many cells."""
    clouds = []
    for k in range(n):
        here, there = places[rng.integers(len(places))], places[rng.integers(len(places))]
        points = rng.normal(0.0, 0.4, (int(rng.integers(2, 7)), 2)) + here
        if k % 4 == 0:
            points[::2] += there - here
        clouds.append(oracle.cloud(points, oracle.random_weights(rng, len(points)) if k % 5 == 0 else None))
    return clouds


@cache
def scattered():
    """Two sides of 48 objects on both sides of zero, in blocks that are met in many cells, and their answer."""
    rng = np.random.default_rng(21)
    places = rng.uniform(-90.0, 90.0, (10, 2))
    sides = [two_places(rng, 48, places) for _ in range(2)]
    times = [np.sort(rng.integers(0, 480, 48)) / 4.0 for _ in range(2)]
    wanted = oracle.all_pairs(*sides, *(t.tolist() for t in times), window=WINDOW, eps=EPS, threshold=THRESHOLD)
    assert len(wanted) > 60
    return SimpleNamespace(sides=sides, times=times, wanted=wanted)


def write_sides(folder, sides, times, names=("t", "t"), shuffled=False, files=4, seed=0):
    """Both sides as files; shuffled rows come up to the delay later than newer ones."""
    rng = np.random.default_rng(seed)
    for side, clouds, own, name in zip("lr", sides, times, names, strict=True):
        stamps = own.dtype.kind == "M"
        seconds = own.astype(np.int64) / 1e6 if stamps else own
        arrival = seconds + (rng.uniform(0.0, DELAY, len(own)) if shuffled else 0.0)
        column = pa.array(own, pa.timestamp("us", "UTC")) if stamps else pa.array(own)
        table = pa.table({"id": pa.array(np.arange(len(own))), name: column, "pos": samples(clouds)})
        for k, rows in enumerate(np.array_split(np.argsort(arrival, kind="stable"), files)):
            write_file(folder / side, k, table.take(pa.array(rows)))


class Victim:
    """A process that runs joins of streams (``stream_victim.py``); all of its children are in a session of its own."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "log"
        scratch = folder / "scratch"
        scratch.mkdir(exist_ok=True)
        self.left_over = {path.name for path in folder.glob("*/out/*.parquet")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("stream_victim.py")), str(folder)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(scratch)},
                start_new_session=True,
            )  # fmt: skip

    def begun(self, name):
        """The last batch that a join has begun, -1 before the first."""
        return self._last(name, "offsets")

    def committed(self, name):
        """The last batch that a join has committed, -1 before the first."""
        return self._last(name, "commits")

    def _last(self, name, log):
        batches = (self.folder / name / "checkpoint" / log).glob("[0-9]*")
        return max((int(path.name) for path in batches), default=-1)

    def is_writing(self, name):
        """Whether this process has written results of a batch that is not committed."""
        out = self.folder / name / "out"
        known = "".join(path.read_text() for path in (out / "_spark_metadata").glob("[0-9]*"))
        written = {path.name for path in out.glob("*.parquet")} - self.left_over
        return self.begun(name) > self.committed(name) and any(file not in known for file in written)

    def await_that(self, condition, what):
        until = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, f"it ended before {what}:\n{self.log.read_text()[-3000:]}"
            assert time.monotonic() < until, f"not after {PATIENCE} seconds: {what}\n{self.log.read_text()[-3000:]}"
            time.sleep(0.005)

    def kill(self):
        """SIGKILL to the whole group, and to Spark's Python workers, which have a group of their own."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        for member in self._members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        await_that(lambda: not self._members(), "all processes of the victim have ended")

    def _members(self):
        """The processes of its session that still run."""
        members = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    members.append(int(path.parent.name))
        return members
