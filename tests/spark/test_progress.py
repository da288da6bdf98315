"""``hp.progress`` and ``hp.watch`` on a real session, classic or Connect."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import haply as hp
from haply.engines.spark.runtime.following import following
from haply.engines.spark.runtime.session import is_connect
from haply.errors import HaplyError
from join_kit import frame, values
from stream_kit import read_stream, write_file

BAND = "abs(left.x - right.x) <= 0.8"


def test_a_join_is_followed_to_its_end(spark):
    told = []
    with following(spark, told.append):
        found = hp.join(frame(spark, values("normal", 40, 1)), frame(spark, values("hist", 40, 2)), BAND, 0.3).count()
    assert found > 0
    if is_connect(spark) and not told:
        return  # the server reports only actions that take seconds
    last = told[-1]
    assert last.stages >= last.stages_done > 0
    assert last.tasks >= last.tasks_done > 0
    assert last.pairs == (None if is_connect(spark) else found)


def test_progress_is_quiet_without_a_terminal(spark, capfd):
    with hp.progress(spark):
        assert hp.join(frame(spark, values("normal", 5, 1)), frame(spark, values("hist", 5, 2)), BAND, 0.9).count() >= 0
    assert "stage" not in "".join(capfd.readouterr())


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("watched"), np.random.default_rng(7)
    for side in ("l", "r", "bad"):
        sd = np.full(40, -1.0 if side == "bad" else 0.5)
        rows = {"time": np.sort(rng.uniform(0.0, 50.0, 40)), "mean": rng.uniform(0.0, 9.0, 40), "sd": sd}
        write_file(folder / side, 0, pa.table(rows))
    return folder


def started(spark, streams, right, folder, funnel):
    left, right = (
        read_stream(spark, streams / side).withColumn("x", hp.gaussian("mean", "sd")) for side in ("l", right)
    )
    pairs = hp.join(left, right, BAND, 0.3, window=10.0, time="time", funnel=funnel)
    writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(folder / "pairs"))


@pytest.mark.long
def test_a_stream_is_watched_until_it_ends(spark, streams, tmp_path, capsys):
    funnel = hp.Funnel()
    hp.watch(started(spark, streams, "r", tmp_path, funnel))
    kept = spark.read.parquet(str(tmp_path / "pairs")).count()
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("micro-batch 0: 80 rows in ")
    assert f"; {kept} kept of " in first
    assert kept > 0


def test_a_stream_that_fails_says_why(spark, streams, tmp_path):
    with pytest.raises(HaplyError, match="has a row that is not a distribution"):
        hp.watch(started(spark, streams, "bad", tmp_path, None))
