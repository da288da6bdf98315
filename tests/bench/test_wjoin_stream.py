"""The streaming bench of the window join: its two contenders agree, and a small run reports what it should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import wjoin_stream

SMALL = replace(wjoin_stream.QUICK, events=120, keys=10, window=4, batches=(1,), cells=2)


@pytest.mark.long
def test_contenders_agree_on_tables(spark, tmp_path):
    files = wjoin_stream.write_streams(tmp_path / "events", 2, SMALL)
    tables = [spark.read.parquet(str(path)) for path in files]
    found = []
    for join in (wjoin_stream.haply_join, wjoin_stream.plain_join):
        rows = [tuple(row) for row in join(*tables, settings=SMALL).collect()]
        assert len(rows) == len(set(rows))
        found.append(set(rows))
    assert found[0] == found[1]
    events = [table.orderBy("id").toPandas() for table in tables]
    times = [own["t"].astype("int64").to_numpy() for own in events]
    reach = max(
        np.ptp([time[i] for time, i in zip(times, combination, strict=True)]) for combination in found[0]
    )  # fmt: skip
    assert reach <= SMALL.window * 10**9
    assert len(found[0]) > 50


def test_files_are_cut_by_time(tmp_path):
    import pyarrow.parquet as pq

    files = wjoin_stream.write_streams(tmp_path / "events", 3, SMALL)
    for path in files:
        parts = [pq.read_table(part) for part in sorted(path.iterdir())]
        assert len(parts) == 3
        assert sum(map(len, parts)) == SMALL.events
        ids = [i for part in parts for i in part["id"].to_pylist()]
        assert ids == list(range(SMALL.events))


@pytest.mark.long
def test_a_small_run_reports_both(spark):
    said: list[str] = []
    report = wjoin_stream.measure(spark, SMALL, said.append)
    assert [result.engine for result in report.results] == ["haply", "stream-stream joins"]
    assert len({result.pairs for result in report.results}) == 1
    assert report.results[0].pairs > 50
    assert [row["batches"] for row in report.figures[0].rows] == [1, 1]
    assert spark.conf.get("spark.haply.cells", None) is None
