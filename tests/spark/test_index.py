"""Indexed tables: the same pairs as without, fewer pages read; torn, changed and half-written ones are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import haply as hp
from haply.engines.spark import index
from haply.engines.spark.index import index_of
from haply.errors import HaplyError
from haply.indexing import manifest
from haply.indexing.manifest import LOCK, MANIFEST, checksum_of
from haply.indexing.pages import PageList
from haply.pruning.candidates.intervals import Intervals
from join_kit import answer, check, collect, frame, values

NEAR = "abs(left.x - right.x) <= 0.8"


def indexed(spark, df, path, page_rows=16, **options):
    """The table, by way of an index."""
    hp.build_index(df, "x", str(path), page_rows=page_rows, **options)
    return hp.read_index(str(path), spark)


@pytest.mark.long(keep=1)
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
    plan = hp.plan_join(probes, table, NEAR, 0.5).explain(verbose=True)
    assert f"index         {counts['pages_total']} pages of 50 rows of the right table" in plan


def test_a_query_that_names_few_columns_keeps_the_index(spark, tmp_path):
    rows = spark.range(200).select("id", F.lit("more").alias("more"), hp.uniform("id", F.col("id") + 0.5).alias("x"))
    hp.build_index(rows, "x", str(tmp_path / "index"), page_rows=20)
    few = rows.where("id IN (7, 90)").drop("more")
    query = "SELECT a.id AS i, b.id AS j FROM a, b WHERE abs(a.x - b.x) < 0.2 WITH THRESHOLD 0.3"
    plan = hp.plan_sql(query, a=hp.read_index(str(tmp_path / "index")), b=few)
    assert "pages" in plan.explain(verbose=True)
    assert sorted(map(tuple, plan.run().collect())) == [(7, 7), (90, 90)]


@pytest.mark.long
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
    added, replaced = table, _named(path)
    assert _data(path) > replaced  # what the one before names stays until the next commit
    assert indexed(spark, more.limit(7), path, mode="overwrite").count() == 7
    assert _data(path) == _named(path) | replaced
    assert added.count() == 50
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


def _manifest(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((path / MANIFEST).read_text())
    return told


def _tell(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with a checksum that fits."""
    (path / MANIFEST).write_text(json.dumps({**manifest, "checksum": checksum_of(manifest)}))


def _named(path: Path) -> set[str]:
    """The data files of the index that is there."""
    told = _manifest(path)
    return {told["pages"]["name"], *(entry["name"] for entry in told["files"])}


def _data(path: Path) -> set[str]:
    """The data files that are there."""
    return {file.name for pattern in ("part-*", "pages-*") for file in path.glob(pattern)}


def _contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def _ids(table) -> list[int]:
    return sorted(row["id"] for row in table.select("id").collect())


def _rows(spark, start: int, count: int):
    """Rows with ids of their own."""
    return spark.range(start, start + count).select("id", hp.gaussian("id", 0.5).alias("x"))


def _part(path: Path) -> Path:
    return sorted(path.glob("part-*"))[0]


def _cut(path: Path) -> None:
    _part(path).write_bytes(_part(path).read_bytes()[:-20])


def _change_footer(path: Path) -> None:
    data = bytearray(_part(path).read_bytes())
    data[-40] ^= 1
    _part(path).write_bytes(data)


def _other_format(path: Path) -> None:
    _tell(path, {**_manifest(path), "format": 99})


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


LOOKS = {
    "count": lambda table: table.count(),
    "collect": lambda table: table.collect(),
    "one column": lambda table: table.select("id").collect(),
    "no rows": lambda table: table.where("id < 0").collect(),
    "nulls": lambda table: table.where("id IS NULL AND x IS NULL").collect(),
    "the first row": lambda table: table.take(1),
    "another join": lambda table: hp.join(table, table, "left.x < right.x", 0.9).count(),
    "a join by pages": lambda table: hp.join(table, table, NEAR, 0.01).count(),
}


@pytest.mark.parametrize(
    "how", [look if look == "collect" else pytest.param(look, marks=pytest.mark.long) for look in LOOKS]
)
def test_a_changed_page_is_noticed_when_it_is_read(spark, sound, tmp_path, how):
    """Whatever byte of it changed, and whatever of it is asked for; to read the index alone does not look at pages."""
    path = tmp_path / "index"
    shutil.copytree(sound, path)
    table = hp.read_index(str(path), spark)
    LOOKS[how](table)  # as it should be
    random = np.random.default_rng(len(how))
    for part in path.glob("part-*"):
        data = bytearray(part.read_bytes())
        footer = int.from_bytes(data[-8:-4], "little") + 8
        data[random.integers(4, len(data) - footer)] ^= 1 << random.integers(8)
        part.unlink()  # in place of the old one, which workers may have open
        part.write_bytes(data)
    for damaged in (table, hp.read_index(str(path), spark)):
        # errors of subqueries, as small tables are, come from Java as they are
        with pytest.raises((PySparkException, Py4JJavaError), match="cannot be used"):
            LOOKS[how](damaged)


def test_changed_bounds_are_noticed(spark, sound, tmp_path):
    path = tmp_path / "index"
    shutil.copytree(sound, path)
    bounds = next(path.glob("pages-*"))
    whole = bounds.read_bytes()
    for at in np.random.default_rng(3).integers(4, len(whole) // 2, 20):
        data = bytearray(whole)
        data[at] ^= 1
        bounds.write_bytes(data)
        with pytest.raises(HaplyError, match="was changed"):
            hp.read_index(str(path), spark)


def test_spark_reads_only_the_columns_that_are_asked_for(spark, sound, capsys):
    hp.read_index(str(sound), spark).select("id").explain()
    assert "ReadSchema: struct<id:bigint>" in capsys.readouterr().out


def _as_format_1(path: Path) -> None:
    """The same index, as the first version wrote it: without generations, and without digests of pages."""
    told = _manifest(path)
    bounds = path / told["pages"]["name"]
    pq.write_table(pq.read_table(bounds).drop_columns(["start", "end", "digest"]), bounds, write_page_checksum=True)
    size, footer = manifest.print_of(*manifest.system_of(str(bounds)))
    told["pages"] = {"name": bounds.name, "bytes": size, "footer": footer}
    for key in ("generation", "id", "previous"):
        del told[key]
    _tell(path, {**told, "format": 1})


@pytest.mark.long
def test_an_index_of_the_first_format_is_read_and_added_to(spark, tmp_path):
    path = tmp_path / "index"
    indexed(spark, _rows(spark, 0, 60), path)
    _as_format_1(path)
    table = hp.read_index(str(path), spark)
    assert _ids(table) == list(range(60))
    assert len(collect(hp.join(_rows(spark, 0, 60), table, NEAR, 0.6))) == 60
    damaged = tmp_path / "damaged"
    shutil.copytree(path, damaged)
    data = bytearray(_part(damaged).read_bytes())
    data[60] ^= 0xFF
    _part(damaged).write_bytes(data)
    with pytest.raises(PySparkException, match="cannot be used"):
        hp.read_index(str(damaged), spark).count()
    table = indexed(spark, _rows(spark, 60, 40), path, mode="append")
    assert _ids(table) == list(range(100))
    assert len(collect(hp.join(_rows(spark, 0, 100), table, NEAR, 0.6))) == 100
    assert _ids(indexed(spark, _rows(spark, 7, 5), path, mode="overwrite")) == list(range(7, 12))


def _outside(path: Path, name: str) -> None:
    """Let the manifest name a file, of the same bytes, by a name that leads out of the folder."""
    told = _manifest(path)
    (path / "sub").mkdir()
    entry = told["files"][0]
    for place in (path.parent, path / "sub"):
        shutil.copy(path / entry["name"], place / "out.parquet")
    entry["name"] = name.format(outside=path.parent)
    _tell(path, told)


@pytest.mark.parametrize(
    "name", ["../out.parquet", "{outside}/out.parquet", "sub/out.parquet", "sub/../../out.parquet"]
)
def test_a_manifest_that_names_files_elsewhere_is_refused(spark, sound, tmp_path, name):
    path = tmp_path / "index"
    shutil.copytree(sound, path)
    _outside(path, name)
    before = (tmp_path / "out.parquet").read_bytes()
    for use in (
        lambda: hp.read_index(str(path), spark),
        lambda: hp.build_index(_rows(spark, 0, 5), "x", str(path), mode="append"),
        lambda: hp.build_index(_rows(spark, 0, 5), "x", str(path), mode="overwrite"),
    ):
        with pytest.raises(HaplyError, match="cannot be used") as refusal:
            use()
        assert str(path) in str(refusal.value)
        assert name.format(outside=tmp_path) in str(refusal.value)
    assert (tmp_path / "out.parquet").read_bytes() == before


def test_what_a_manifest_says_of_the_one_before_is_looked_at_too(spark, sound, tmp_path):
    """Its files are to be removed: they had better be files of the index."""
    path = tmp_path / "index"
    shutil.copytree(sound, path)
    (tmp_path / "letter.txt").write_text("keep me")
    _tell(path, {**_manifest(path), "previous": {"id": "0" * 32, "names": ["../letter.txt"]}})
    with pytest.raises(HaplyError, match=r"\.\./letter\.txt"):
        hp.build_index(_rows(spark, 0, 5), "x", str(path), mode="overwrite")
    assert (tmp_path / "letter.txt").exists()


def test_a_link_out_of_the_folder_is_refused(spark, sound, tmp_path):
    path = tmp_path / "index"
    shutil.copytree(sound, path)
    part = _part(path)
    shutil.move(part, tmp_path / "elsewhere.parquet")
    part.symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(HaplyError, match="leads out of the folder") as refusal:
        hp.read_index(str(path), spark)
    assert str(part) in str(refusal.value)
    (tmp_path / "link").symlink_to(sound)  # the folder itself may be one
    assert hp.read_index(str(tmp_path / "link"), spark).count() == 90


def _two_parts(path: Path) -> None:
    for part in range(2):
        (path / f"part-0000{part}.parquet").write_bytes(b"rows of somebody else")


def _spoilt_manifest(path: Path) -> None:
    _two_parts(path)
    (path / MANIFEST).write_text('{"format": 1}')


def _like_ours(path: Path) -> None:
    (path / f"part-{'ab' * 16}.parquet").write_bytes(b"rows of somebody else")


@pytest.mark.parametrize("fill", [_two_parts, _spoilt_manifest, _like_ours])
@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_a_folder_of_foreign_files_is_not_touched(spark, tmp_path, fill, mode):
    path = tmp_path / "mine"
    path.mkdir()
    fill(path)
    before = _contents(path)
    with pytest.raises(HaplyError, match=r"not an index|was changed") as refusal:
        hp.build_index(_rows(spark, 0, 5), "x", str(path), mode=mode)
    assert all(part in str(refusal.value) for part in (str(path), "another path", "remove the folder yourself"))
    assert (MANIFEST if MANIFEST in before else sorted(before)[0]) in str(refusal.value)
    assert _contents(path) == before


@pytest.mark.long
def test_foreign_files_beside_an_index_stay(spark, tmp_path):
    path = tmp_path / "index"
    path.mkdir()  # an empty folder is as good as none
    indexed(spark, _rows(spark, 0, 20), path, mode="overwrite")
    _two_parts(path)
    _like_ours(path)
    (path / f"{MANIFEST}.bak").write_text("a copy")
    (path / "pages-of-a-diary.parquet").write_text("monday")
    foreign = {name: data for name, data in _contents(path).items() if name not in {MANIFEST, LOCK, *_named(path)}}
    for start, mode in ((20, "overwrite"), (40, "append"), (60, "overwrite"), (80, "overwrite")):
        before = _named(path)
        indexed(spark, _rows(spark, start, 20), path, mode=mode)
        assert {name: data for name, data in _contents(path).items() if name in foreign} == foreign
        assert set(_contents(path)) == {MANIFEST, LOCK, *foreign, *before, *_named(path)}


@pytest.mark.long
def test_a_failed_build_leaves_the_index_and_room_for_the_next(spark, tmp_path):
    bad = spark.createDataFrame([(1, (0.0, -1.0))], "id long, x struct<mean:double,sd:double>")
    path = tmp_path / "index"
    with pytest.raises(PySparkException, match="not a distribution"):
        hp.build_index(bad, "x", str(path))
    assert _ids(indexed(spark, _rows(spark, 0, 9), path)) == list(range(9))
    with pytest.raises(PySparkException, match="not a distribution"):
        hp.build_index(bad, "x", str(path), mode="overwrite")
    assert _ids(hp.read_index(str(path), spark)) == list(range(9))
    before = _named(path)
    indexed(spark, _rows(spark, 0, 3), path, mode="overwrite")
    assert {file.name for file in path.iterdir()} == {MANIFEST, LOCK, *before, *_named(path)}


@pytest.mark.long
def test_what_was_read_before_an_overwrite_can_be_used_after_it(spark, tmp_path):
    path = tmp_path / "index"
    table = indexed(spark, _rows(spark, 0, 50), path)
    pairs, few = hp.join(_rows(spark, 10, 5), table, NEAR, 0.6), table.where("id < 10")
    old = _named(path)
    indexed(spark, _rows(spark, 100, 30), path, mode="overwrite")
    assert set(collect(pairs)) == {(k, k) for k in range(10, 15)}
    assert _ids(few) == list(range(10))
    assert table.count() == 50
    indexed(spark, _rows(spark, 200, 30), path, mode="append")
    assert not old & _data(path)


BOTH = [("overwrite", "overwrite"), ("append", "append"), ("overwrite", "append"), ("append", "overwrite")]


@pytest.mark.long(keep=2)
@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize(("late", "early"), BOTH)
def test_a_build_that_another_has_overtaken_is_refused(spark, tmp_path, monkeypatch, late, early, locks):
    """One begins and ends while the other has written its files and is about to commit."""
    path, real = tmp_path / "index", index.commit_pages
    indexed(spark, _rows(spark, 0, 20), path)
    if not locks:  # as on other file systems
        monkeypatch.setattr(manifest, "_has_locks", lambda system: False)
    before = _named(path)

    def overtaken(*args: Any) -> None:
        monkeypatch.setattr(index, "commit_pages", real)
        assert _data(path) > before
        hp.build_index(_rows(spark, 100, 10), "x", str(path), mode=early)
        real(*args)

    monkeypatch.setattr(index, "commit_pages", overtaken)
    with pytest.raises(HaplyError, match=r"committed first.*not written"):
        hp.build_index(_rows(spark, 200, 10), "x", str(path), mode=late)
    kept = list(range(20)) if early == "append" else []
    assert _ids(hp.read_index(str(path), spark)) == [*kept, *range(100, 110)]
    assert {file.name for file in path.iterdir()} == {MANIFEST, LOCK} | before | _named(path)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(("one", "other"), [*BOTH[:3], ("error", "error")])
def test_of_two_builds_that_commit_at_once_one_wins(spark, tmp_path, monkeypatch, one, other):
    path, real, ready = tmp_path / "index", index.commit_pages, threading.Barrier(2)
    kept: list[int] = []
    if one != "error":
        indexed(spark, _rows(spark, 0, 20), path)
        kept = list(range(20))

    def together(*args: Any) -> None:
        ready.wait(120)
        real(*args)

    def build(start: int, mode: Any) -> str:
        try:
            hp.build_index(_rows(spark, start, 10), "x", str(path), mode=mode)
        except HaplyError as refusal:
            return str(refusal)
        return ""

    monkeypatch.setattr(index, "commit_pages", together)
    with ThreadPoolExecutor(2) as threads:
        said = list(threads.map(build, (100, 200), (one, other)))
    assert "" in said, said
    winner = said.index("")
    assert "committed first" in said[1 - winner]
    assert "not written" in said[1 - winner]
    wanted = [*(kept if (one, other)[winner] == "append" else []), *range(100 + 100 * winner, 110 + 100 * winner)]
    assert _ids(hp.read_index(str(path), spark)) == wanted
    monkeypatch.setattr(index, "commit_pages", real)
    indexed(spark, _rows(spark, 300, 1), path, mode="overwrite")
    indexed(spark, _rows(spark, 300, 1), path, mode="overwrite")
    assert len(_data(path)) == 4  # rows and bounds of the last two: of the loser nothing is left


def test_processes_commit_one_after_the_other(sound, tmp_path):
    """Every commit that reports success makes a generation of its own."""
    path = tmp_path / "index"
    shutil.copytree(sound, path)
    program = f"""
        from haply.errors import HaplyError
        from haply.indexing.manifest import begin, building

        won, told = 0, ("column", "schema", "levels", "page_rows", "files", "pages")
        for _ in range(60):
            before = begin({str(path)!r}, "overwrite")
            try:
                with building({str(path)!r}, before) as build:
                    build.commit({{key: before[key] for key in told}})
                won += 1
            except HaplyError as refusal:
                assert "committed first" in str(refusal), refusal
        print(won)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    said = [one.communicate() for one in running]
    assert not any(one.returncode for one in running), said
    assert _manifest(path)["generation"] == 1 + sum(int(out) for out, _ in said)
    assert {file.name for file in path.iterdir()} == {MANIFEST, LOCK} | _data(sound)


@pytest.mark.long
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
        from haply.indexing import manifest

        class Dies(fs.LocalFileSystem):
            def move(self, source, target):
                os.kill(os.getpid(), signal.SIGKILL)

        real = manifest.system_of
        spark = hp.local_session(
            "victim", cores=1, memory="1g", shuffle_partitions=1, extra_conf={{
                # starting quickly counts here, as in `conftest.py`
                "spark.sql.codegen.wholeStage": False,
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            }},
        )
        df = spark.range(50).select("id", hp.gaussian("id", 1.0).alias("x"))
        manifest.system_of = lambda path: (Dies(), real(path)[1])
        hp.build_index(df, "x", {str(path)!r}, mode="overwrite")
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr.decode()[-2000:]
    assert {file.name for file in path.iterdir()} > before  # it had come far
    assert collect(hp.join(probes, hp.read_index(str(path), spark), NEAR, 0.3)) == wanted
    table = indexed(spark, frame(spark, values("normal", 30, 17)), path, mode="append")
    assert table.count() == 120
    assert _data(path) == _named(path) | {file for file in before if file.startswith("pages-")}
    assert {file.name for file in path.iterdir()} == {MANIFEST, LOCK} | _data(path)


def test_what_cannot_be_indexed_is_said_before_anything_is_written(spark, tmp_path):
    rows = frame(spark, values("normal", 10, 18)).withColumn("name", F.lit("a"))
    path = str(tmp_path / "index")
    with pytest.raises(HaplyError, match="mode"):
        hp.build_index(rows, "x", path, mode="anyhow")
    with pytest.raises(HaplyError, match="cannot have this size"):
        hp.build_index(rows, "x", path, page_rows=0)
    with pytest.raises(HaplyError, match="cannot be indexed"):
        hp.build_index(rows, "name", path)
    with pytest.raises(HaplyError, match="nothere"):
        hp.build_index(rows, "nothere", path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    for mode, why in (("error", "exists already"), ("overwrite", "not an index")):
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
