"""Indexed tables: the same pairs as without, fewer pages read; torn, changed and half-written ones are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import haply as hp
from haply.errors import HaplyError
from haply.pruning.intervals import Intervals
from haply.spark.index import MANIFEST, index_of
from haply.spark.indexed import PageList
from join_kit import answer, check, collect, frame, values

NEAR = "abs(left.x - right.x) <= 0.8"


def indexed(spark, df, path, page_rows=16, **options):
    """The table, by way of an index."""
    hp.build_index(df, "x", str(path), page_rows=page_rows, **options)
    return hp.read_index(str(path), spark)


@pytest.mark.parametrize("kind", ["normal", "uniform", "hist", "mixture", "discrete", "point"])
def test_every_kind_has_the_pairs_of_brute_force(spark, tmp_path, kind):
    """With the index on either side."""
    probes, rows = values("normal", 30, 1), values(kind, 120, 2)
    table = indexed(spark, frame(spark, rows), tmp_path / "index")
    chances, wanted, hairline = answer(probes, rows, NEAR, 0.2)
    turned = kind in ("uniform", "mixture", "point")
    sides = (table, frame(spark, probes)) if turned else (frame(spark, probes), table)
    found = collect(hp.join(*sides, NEAR, 0.2))
    found = {(j, i) if turned else (i, j): p for (i, j), p in found.items()}
    assert set(found) - hairline == wanted - hairline
    assert wanted
    assert all(abs(p - float(chances[pair])) < 1e-9 for pair, p in found.items())


def test_brute_force_agrees(spark, tmp_path, monkeypatch):
    """With every second table read back from an index."""
    made = []

    def by_index(spark, rows):
        made.append(rows)
        plain = frame(spark, rows)
        return indexed(spark, plain, tmp_path / f"index{len(made)}", page_rows=7) if len(made) % 2 == 0 else plain

    monkeypatch.setattr("join_kit.frame", by_index)
    for seed, on, threshold in ((2, NEAR, 0.8), (3, "left.x - right.x BETWEEN -0.5 AND 1.25", 0.5)):
        check(spark, values("normal", 40, seed), values("uniform", 60, seed + 50), on, threshold, strict=on == NEAR)


def test_pages_far_away_are_not_read(spark, tmp_path):
    rows = spark.range(4000).select("id", hp.gaussian(F.col("id") * 0.5, F.lit(0.2)).alias("x"))
    probes = spark.range(20).select("id", hp.gaussian(F.col("id") + 500.0, F.lit(0.1)).alias("x"))
    table = indexed(spark, rows, tmp_path / "index", page_rows=50)
    funnel, without = hp.Funnel(), hp.Funnel()
    found = collect(hp.join(probes, table, NEAR, 0.5, funnel=funnel))
    assert found == pytest.approx(collect(hp.join(probes, rows, NEAR, 0.5, funnel=without)), abs=1e-12)
    counts = funnel.to_dict()
    assert (counts["rows_left"], counts["rows_right"]) == (20, 4000)
    assert counts["kept"] == without.to_dict()["kept"] == len(found) > 0
    # twenty units of two rows each, on pages of 50 rows: the pages they lie on, and at most one more
    assert 1 <= counts["pages_read"] <= 2
    assert 80 <= counts["pages_total"] <= 90  # the last page of a file may be small
    assert without.to_dict()["pages_total"] == 0
    plan = hp.plan_join(probes, table, NEAR, 0.5).explain()
    assert f"index         {counts['pages_total']} pages of 50 rows of the right table" in plan


def test_a_query_that_names_few_columns_keeps_the_index(spark, tmp_path):
    rows = spark.range(200).select("id", F.lit("more").alias("more"), hp.uniform("id", F.col("id") + 0.5).alias("x"))
    hp.build_index(rows, "x", str(tmp_path / "index"), page_rows=20)
    few = rows.where("id IN (7, 90)").drop("more")
    query = "SELECT a.id AS i, b.id AS j FROM a, b WHERE abs(a.x - b.x) < 0.2 WITH THRESHOLD 0.3"
    plan = hp.plan_sql(query, a=hp.read_index(str(tmp_path / "index")), b=few)
    assert "pages" in plan.explain()
    assert sorted(map(tuple, plan.run().collect())) == [(7, 7), (90, 90)]


def test_other_conditions_are_looked_at_too(spark, tmp_path):
    probes, rows = values("hist", 20, 6), values("normal", 70, 5)
    left = frame(spark, probes).withColumn("k", F.col("id") % 2)
    table = indexed(spark, frame(spark, rows).withColumn("k", F.col("id") % 3), tmp_path / "index")
    some = table.where("id < 40")
    assert index_of(table) is not None
    assert index_of(some) is None
    answers = {on: answer(probes, rows, on, 0.2) for on in (NEAR, "left.x < right.x", "abs(left.x - right.x) >= 3")}
    for right, on, more, holds in (
        (table, NEAR, "left.k = right.k", lambda i, j: i % 2 == j % 3),
        (table, NEAR, "right.id > 20 AND left.id < 15 AND left.id + right.k > 8",
         lambda i, j: j > 20 and i < 15 and i + j % 3 > 8),
        # where pages do not help, the table is one like any other
        (table, "left.x < right.x", "", lambda i, j: True),
        (table, "abs(left.x - right.x) >= 3", "", lambda i, j: True),
        (some, NEAR, "", lambda i, j: j < 40),
    ):  # fmt: skip
        _, pairs, hairline = answers[on]
        wanted = {pair for pair in pairs if holds(*pair)}
        # what only conditions need is not in the result
        columns = ["id_left", "id_right"] if more else None
        found = collect(hp.join(left, right, f"{on} AND {more}" if more else on, 0.2, columns=columns))
        assert set(found) - hairline == wanted - hairline
        assert all(holds(*pair) for pair in found)
        assert wanted


def test_rows_can_be_added_and_replaced(spark, tmp_path):
    one, two = values("normal", 70, 7), values("normal", 50, 8)
    asking, path = values("normal", 30, 9), tmp_path / "index"
    probes = frame(spark, asking)
    indexed(spark, frame(spark, one), path)
    more = frame(spark, two).withColumn("id", F.col("id") + 1000)
    table = indexed(spark, more, path, mode="append")
    assert table.count() == 120
    _, wanted, hairline = answer(asking, one + two, NEAR, 0.3)
    found = {(i, j if j < 1000 else j - 930) for i, j in collect(hp.join(probes, table, NEAR, 0.3))}
    assert found - hairline == wanted - hairline
    table = indexed(spark, more, path, mode="overwrite")
    assert table.count() == 50
    files = json.loads((path / MANIFEST).read_text())["files"]
    assert {entry.name for entry in path.glob("part-*")} == {entry["name"] for entry in files}  # nothing old is left
    with pytest.raises(HaplyError, match="differ"):
        hp.build_index(more.withColumn("new", F.lit(1)), "x", str(path), mode="append")


def test_nulls_stay_and_match_nothing_and_an_index_can_be_moved(spark, tmp_path):
    """Also after the index was moved."""
    rows = [None if k % 4 == 0 else value for k, value in enumerate(values("normal", 40, 10))]
    asking = values("normal", 20, 11)
    indexed(spark, frame(spark, rows), tmp_path / "index", page_rows=4)
    shutil.move(tmp_path / "index", tmp_path / "elsewhere")
    table, probes = hp.read_index(str(tmp_path / "elsewhere"), spark), frame(spark, asking)
    assert table.count() == 40
    assert table.where("x IS NULL").count() == 10
    _, wanted, hairline = answer(asking, rows, NEAR, 0.2)
    found = collect(hp.join(probes, table, NEAR, 0.2))
    assert set(found) - hairline == wanted - hairline
    assert wanted
    nothing = indexed(spark, frame(spark, rows).where("id < 0"), tmp_path / "empty")
    assert nothing.count() == 0
    assert collect(hp.join(probes, nothing, NEAR, 0.2)) == {}


def test_a_relative_path_is_seen_from_here(spark, tmp_path, monkeypatch):
    """Spark and its workers stay in the folder they were started in."""
    monkeypatch.chdir(tmp_path)
    rows = values("normal", 60, 5)
    table = indexed(spark, frame(spark, rows), Path("sub") / "index")
    monkeypatch.chdir(tmp_path.parent)
    assert (tmp_path / "sub" / "index" / MANIFEST).exists()
    _, wanted, hairline = answer(rows, rows, NEAR, 0.5)
    found = collect(hp.join(frame(spark, rows), table, NEAR, 0.5))
    assert set(found) - hairline == wanted - hairline
    assert wanted


@pytest.fixture(scope="module")
def sound(spark, tmp_path_factory):
    """An index to be spoiled in copies."""
    path = tmp_path_factory.mktemp("sound") / "index"
    indexed(spark, frame(spark, values("normal", 90, 14)), path)
    return path


def _part(path: Path) -> Path:
    return sorted(path.glob("part-*"))[0]


def _cut(path: Path) -> None:
    _part(path).write_bytes(_part(path).read_bytes()[:-20])


def _change_footer(path: Path) -> None:
    data = bytearray(_part(path).read_bytes())
    data[-40] ^= 1
    _part(path).write_bytes(data)


def _other_format(path: Path) -> None:
    from haply.spark.index import _checksum

    manifest = json.loads((path / MANIFEST).read_text())
    manifest["format"] = 99
    manifest["checksum"] = _checksum(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))


def _claim_more(path: Path) -> None:
    text = (path / MANIFEST).read_text()
    (path / MANIFEST).write_text(text.replace('"page_rows": 16', '"page_rows": 17'))


SPOILT = {
    "no manifest": (lambda path: (path / MANIFEST).unlink(), "not there"),
    "half a manifest": (lambda path: (path / MANIFEST).write_text('{"format"'), "cannot be read"),
    "another manifest": (_claim_more, "was changed"),
    "another version": (_other_format, "another version"),
    "a file is missing": (lambda path: _part(path).unlink(), "not there"),
    "a file is cut": (_cut, "was changed"),
    "a footer differs": (_change_footer, "was changed"),
    "no bounds": (lambda path: next(path.glob("pages-*")).unlink(), "not there"),
    "no folder": (shutil.rmtree, "not there"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_index_is_refused(spark, sound, tmp_path, how):
    spoil, why = SPOILT[how]
    path = tmp_path / "index"
    shutil.copytree(sound, path)
    hp.read_index(str(path), spark)
    spoil(path)
    with pytest.raises(HaplyError, match=why) as refusal:
        hp.read_index(str(path), spark)
    assert str(path) in str(refusal.value)
    assert "build it again" in str(refusal.value)


def test_a_changed_page_is_noticed_when_it_is_read(spark, sound, tmp_path):
    path = tmp_path / "index"
    shutil.copytree(sound, path)
    for part in path.glob("part-*"):
        data = bytearray(part.read_bytes())
        data[60] ^= 0xFF  # inside the first page
        part.write_bytes(data)
    table = hp.read_index(str(path), spark)
    with pytest.raises(PySparkException, match="cannot be used"):
        hp.join(frame(spark, values("normal", 60, 15)), table, NEAR, 0.01).collect()


def test_killed_before_the_end_the_old_index_stays(spark, sound, tmp_path):
    """All new files are written; the last step, which makes them the index, is not reached."""
    path = tmp_path / "index"
    shutil.copytree(sound, path)
    before = {file.name for file in path.iterdir()}
    probes = frame(spark, values("normal", 20, 16))
    wanted = collect(hp.join(probes, hp.read_index(str(path), spark), NEAR, 0.3))
    program = f"""
        import os, signal
        from pyarrow import fs
        import haply as hp
        from haply.spark import index

        class Dies(fs.LocalFileSystem):
            def move(self, source, target):
                os.kill(os.getpid(), signal.SIGKILL)

        real = index._system
        spark = hp.local_session(
            "victim", cores=1, memory="1g", shuffle_partitions=1, extra_conf={{
                # starting quickly counts here, as in `conftest.py`
                "spark.sql.codegen.wholeStage": False,
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            }},
        )
        df = spark.range(50).select("id", hp.gaussian("id", 1.0).alias("x"))
        index._commit.__globals__["_system"] = lambda path: (Dies(), real(path)[1])
        hp.build_index(df, "x", {str(path)!r}, mode="overwrite")
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr.decode()[-2000:]
    assert {file.name for file in path.iterdir()} > before  # it had come far
    assert collect(hp.join(probes, hp.read_index(str(path), spark), NEAR, 0.3)) == wanted
    table = indexed(spark, frame(spark, values("normal", 30, 17)), path, mode="append")
    assert table.count() == 120
    left = {file.name for file in path.glob("part-*")}
    assert left == {entry["name"] for entry in json.loads((path / MANIFEST).read_text())["files"]}


def test_what_cannot_be_indexed_is_said_before_anything_is_written(spark, tmp_path):
    rows = frame(spark, values("normal", 10, 18)).withColumn("name", F.lit("a"))
    path = str(tmp_path / "index")
    with pytest.raises(HaplyError, match="mode"):
        hp.build_index(rows, "x", path, mode="anyhow")
    with pytest.raises(HaplyError, match="no such size"):
        hp.build_index(rows, "x", path, page_rows=0)
    with pytest.raises(HaplyError, match="cannot be indexed"):
        hp.build_index(rows, "name", path)
    with pytest.raises(HaplyError, match="nothere"):
        hp.build_index(rows, "nothere", path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    for mode, why in (("error", "there already"), ("overwrite", "no index")):
        with pytest.raises(HaplyError, match=why):
            hp.build_index(rows, "x", str(tmp_path / "mine"), mode=mode)
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["letter.txt"]
    assert not Path(path).exists()
    bad = spark.createDataFrame([(1, (0.0, -1.0))], "id long, x struct<mean:double,sd:double>")
    with pytest.raises(PySparkException, match="not a distribution"):
        hp.build_index(bad, "x", path)


def test_rows_meet_the_pages_whose_intervals_overlap():
    random = np.random.default_rng(3)
    for _ in range(200):
        pages, rows = (
            Intervals(start, start + random.exponential(2.0, len(start)) - 0.5, random.random(len(start)) < 0.2)
            for start in (random.normal(0.0, 5.0, count) for count in random.integers(0, 30, 2))
        )
        row, page = PageList(pages).met_by(rows)
        met = (pages.start[None] <= rows.end[:, None]) & (rows.start[:, None] <= pages.end[None])
        wanted = set(zip(*np.nonzero(met & ~pages.hopeless[None]), strict=True))
        assert set(zip(row.tolist(), page.tolist(), strict=True)) == wanted
        assert len(row) == len(wanted)
