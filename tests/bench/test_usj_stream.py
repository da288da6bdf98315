"""The streaming bench: its two contenders agree, and a small run reports what it should."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import usj_stream

SMALL = replace(
    usj_stream.QUICK, windows=(60,), windows_per_run=(2,), cells=(3,), compared_window=60, compared_objects=150
)


@pytest.mark.long
def test_contenders_agree_on_tables(spark, tmp_path):
    left, right = (
        spark.read.parquet(str(path)) for path in usj_stream.write_streams(tmp_path / "data", 100, 300, SMALL)
    )
    found = []
    for join in (usj_stream.haply_join, usj_stream.plain_join):
        pairs = [(row.i, row.j) for row in join(left, right, 100, SMALL).collect()]
        assert len(pairs) == len(set(pairs))
        found.append(set(pairs))
    assert found[0] == found[1]
    assert len(found[0]) > 20
    assert max(abs(i - j) for i, j in found[0]) <= 99


@pytest.mark.long
def test_a_run_of_haply_tells_where_its_time_goes(spark, tmp_path):
    said: list[str] = []
    (row,) = usj_stream.follow(spark, SMALL, tmp_path, said.append)
    spark.conf.unset("spark.haply.cells")
    assert row["events"] == 240
    assert row["pairs"] > 0
    assert row["kernel"] > 0
    assert row["state"] > 0
    assert row["events per second"] == pytest.approx(240 / row["whole run"], rel=0.5)
    assert said == ["window 60, 3 cells"]
