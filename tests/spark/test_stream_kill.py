"""A stream join that is killed with SIGKILL and started again: exactly once."""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np

import haply as hp
from stream_kit import (
    DELAY,
    EPS,
    THRESHOLD,
    WINDOW,
    Victim,
    assert_pairs,
    pairs_in,
    read_stream,
    scattered,
    write_sides,
)


def test_kill_9_and_restart_is_exactly_once(spark, tmp_path):
    """Killed within a batch, right after a commit and while pairs are written: the answer is that without kills."""
    files = 6
    write_sides(tmp_path, scattered().sides, scattered().times, shuffled=True, files=files, seed=3)
    arguments = {
        "on": f"DISTANCE(left.pos, right.pos) <= {EPS}", "threshold": THRESHOLD, "time": "t", "window": WINDOW,
        "max_delay": DELAY,
    }  # fmt: skip
    (tmp_path / "join.json").write_text(json.dumps(arguments))
    out = tmp_path / "out"
    rng = np.random.default_rng(17)

    def within_the_first_batch(victim):
        victim.await_that(lambda: victim.has_begun(0), "batch 0 has begun")
        time.sleep(rng.uniform(0.0, 2.0))  # anywhere in it: its first run takes many seconds
        return not victim.has_committed(0)

    def right_after_a_commit(victim):
        victim.await_that(lambda: victim.has_committed(2), "batch 2 is committed")
        return not victim.has_committed(4)

    def while_pairs_are_written(victim):
        """Batch 4 has written pairs, which are not yet part of the answer."""
        victim.await_that(lambda: victim.has_begun(4), "batch 4 has begun")
        before = set(os.listdir(out))
        victim.await_that(lambda: set(os.listdir(out)) - before, "pairs of batch 4 are written")
        return not victim.has_committed(5)

    for moment in (within_the_first_batch, right_after_a_commit, while_pairs_are_written):
        victim = Victim(tmp_path)
        try:
            at_the_moment = moment(victim)
        finally:
            victim.kill()
        assert at_the_moment, f"too late for {moment.__name__}"
        assert victim.process.returncode == -signal.SIGKILL
        assert not (tmp_path / "done").exists()
    assert not victim.has_committed(files - 1)
    # The last run is in this process, whose session is warm. It has another number of shuffle partitions: Spark keeps
    # to that of the checkpoint, and rows go to the same cells.
    assert spark.conf.get("spark.sql.shuffle.partitions") != "2"
    result = hp.join(*(read_stream(spark, tmp_path / side) for side in "lr"), **arguments)
    writer = result.writeStream.format("parquet").outputMode("append").option("path", str(out))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        read = sum(progress["numInputRows"] for progress in query.recentProgress)
    finally:
        query.stop()
    assert read < 48, "it began where the victims had come to"
    assert_pairs(pairs_in(spark.read.parquet(str(out))), scattered().wanted, *scattered().sides, EPS, THRESHOLD)
    batches = sorted(int(path.name) for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    assert batches == list(range(len(batches))), "every batch once"
    assert files <= len(batches) <= files + 3, "a file of each stream in a batch"
