"""``how=`` and ``keep=`` of streams on Spark: the rows of the answer of tables, each once, and none before its time.

What may come late, fail or be forgotten is tested in ``test_stream_settling.py``, without Spark.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import haply as hp
from answers_kit import rows_of
from haply.errors import HaplyError
from stream_kit import await_that, read_stream, running, settings, write_file

GAUSSIAN = pa.struct([("mean", pa.float64()), ("sd", pa.float64())])
UNIFORM = pa.struct([("lo", pa.float64()), ("hi", pa.float64())])
SCHEMA = pa.schema(
    [
        ("name", pa.string()), ("key", pa.int64()), ("kind", pa.string()), ("n", pa.int64()), ("t", pa.float64()),
        ("x", GAUSSIAN), ("u", UNIFORM),
    ]
)  # fmt: skip
ON = "abs(left.x - right.x) <= 1.5 AND left.key = right.key AND left.kind = 'a' AND left.n != right.n"
DELAY, FILES = 5.0, 3


def table_of(rows):
    columns = zip(zip(*rows, strict=True), SCHEMA.types, strict=True)
    return pa.table([pa.array(column, kind) for column, kind in columns], schema=SCHEMA)


def clock(time, x):
    """A row that has no partner, and moves the clock."""
    return table_of([("clock", 0, "a", 0, time, {"mean": x, "sd": 0.1}, {"lo": time - 1.0, "hi": time})])


def write_streams(folder):
    """Two streams with nulls and equal rows, shuffled within the delay; the last two files only move the clock."""
    rng, tables = np.random.default_rng(8), []
    for side, (seed, count) in zip("lr", ((3, 34), (4, 28)), strict=True):
        rows = []
        for *first, t, x, _, _ in rows_of(seed, count):
            n = first[-1]
            u = None if n == 7 else {"lo": t - 0.5 - 0.05 * (n or 0), "hi": t}
            rows.append((*first, t, None if x is None else {"mean": x[0] / 3, "sd": x[1]}, u))
        table = table_of(rows)
        times = table["t"].to_numpy()
        order = np.argsort(times + rng.uniform(0.0, DELAY, len(times)), kind="stable")
        for k, chosen in enumerate(np.array_split(order, FILES)):
            write_file(folder / side, k, table.take(pa.array(chosen)))
        for k, time in ((FILES, 1000.0), (FILES + 1, 2000.0)):
            write_file(folder / side, k, clock(time, 9e3 if side == "l" else -9e3))
        tables.append(table)
    return tables


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    return SimpleNamespace(folder=folder, tables=write_streams(folder))


def bag(rows):
    """Rows with multiplicity. Tables and streams round probabilities at other places."""
    found = Counter()
    for row in rows:
        if "clock" not in row.values():
            probability = row.get("probability")
            rounded = row if probability is None else {**row, "probability": round(probability, 9)}
            found[tuple(map(repr, rounded.values()))] += 1
    return found


def started(result, folder):
    writer = result.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.start(str(folder / "out"))


def run(spark, streams, folder, **options):
    """The answer, from a query that is stopped in the middle and started again."""
    with settings(spark, spark__haply__cells=3):
        for start in range(2):
            for side in "lr":
                for path in sorted((streams.folder / side).glob("*.parquet")):
                    if start or int(path.stem) < 2:
                        write_copy(path, folder / side)
            result = hp.join(*(read_stream(spark, folder / side) for side in "lr"), **options)
            query = started(result, folder)
            query.processAllAvailable()
            query.stop()
        return result, [row.asDict(recursive=True) for row in spark.read.parquet(str(folder / "out")).collect()]


def write_copy(path, folder):
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / path.name).exists():
        (folder / path.name).hardlink_to(path)


CASES = {
    "outer": {"how": "outer"},
    "anti": {"how": "anti"},
    "semi": {"how": "semi"},
    "left and best of the right": {"how": "left", "keep": "best_right"},
    "the two best of the left": {"keep": "best_left", "k": 2, "order_by": ["name", "n", "t"]},
    "right and mutual": {"how": "right", "keep": "mutual", "order_by": ["name", "n", "t"]},
    "outer in uncertain times": {"how": "outer", "time": "u"},
}


@pytest.mark.long
@pytest.mark.parametrize("asked", CASES.values(), ids=CASES)
def test_streams_answer_as_tables_do(spark, streams, tmp_path, asked):
    options = {"on": ON, "threshold": 0.4, "time": "t", "window": 10, "max_delay": DELAY, **asked}
    if options["time"] == "u":
        options["on"] = "left.key = right.key AND left.kind = 'a'"
    wanted = hp.join(*streams.tables, **options)
    result, found = run(spark, streams, tmp_path, **options)
    assert result.columns == wanted.column_names
    assert bag(found) == bag(wanted.to_pylist())
    assert sum(bag(found).values()) > 10


@pytest.mark.long
def test_sql_joins_streams_from_the_left(spark, streams, tmp_path):
    query = """
        SELECT A.name, A.t, B.n, PROB() AS probability
        FROM A LEFT JOIN B ON abs(A.x - B.x) <= 1.5 AND A.key = B.key AND A.kind = 'a' AND WINDOW(A, B) = 10
        WITH THRESHOLD 0.4
    """
    left, right = (read_stream(spark, streams.folder / side) for side in "lr")
    with running(hp.sql(query, time="t", max_delay=DELAY, A=left, B=right), tmp_path, "asked") as running_query:
        running_query.processAllAvailable()
        found = [row.asDict() for row in spark.table("asked").collect()]
    wanted = hp.sql(query, time="t", A=streams.tables[0], B=streams.tables[1]).to_pylist()
    assert bag(found) == bag(wanted)


@pytest.mark.long
def test_a_silent_stream_holds_rows_back_and_late_rows_are_in_no_answer(spark, tmp_path):
    def row(name, t, x):
        return table_of([(name, 0, "a", 0, t, {"mean": x, "sd": 0.1}, None)])

    left = [row("alone", 10.0, 0.0), row("later", 50.0, 0.0), row("too late", 20.0, 0.0), clock(1000.0, 9e3)]
    right = [row("early", 1.0, 5.0), row("meets later", 51.0, 0.1), clock(1000.0, -9e3), clock(1000.0, -9e3)]
    write_file(tmp_path / "l", 0, left[0])
    write_file(tmp_path / "r", 0, right[0])
    nothing = row("no value", 52.0, 0.0).set_column(5, SCHEMA.field("x"), pa.nulls(1, GAUSSIAN))
    write_file(tmp_path / "l", 1, pa.concat_tables([left[1], nothing]))
    funnel = hp.Funnel()
    with settings(spark, spark__haply__cells=2):
        result = hp.join(
            *(read_stream(spark, tmp_path / side) for side in "lr"), "abs(left.x - right.x) <= 1", 0.5, time="t",
            window=4, max_delay=DELAY, how="outer", columns=["name_left", "name_right"], funnel=funnel,
        )  # fmt: skip
        with running(result, tmp_path, "held") as query:

            def names():
                query.processAllAvailable()
                rows = map(tuple, spark.table("held").drop("probability").collect())
                return {row for row in rows if "clock" not in row}

            assert names() == {("no value", None)}, "the right has only come to 1.0: a partner may follow"
            write_file(tmp_path / "r", 1, right[1])
            found = names()
            assert found == {("no value", None), ("later", "meets later"), ("alone", None), (None, "early")}
            write_file(tmp_path / "l", 2, left[2])
            write_file(tmp_path / "r", 2, right[2])
            assert names() == found, "the left has only come to 52.0"
            write_file(tmp_path / "l", 3, left[3])
            write_file(tmp_path / "r", 3, right[3])
            assert names() == found, "nothing is told twice, and of late rows nothing"
            wanted = {"kept": 1, "unmatched_left": 2, "unmatched_right": 1, "late_left": 1, "late_right": 0}
            await_that(lambda: wanted.items() <= funnel.to_dict().items(), f"the funnel has {wanted}")


def test_what_streams_cannot_answer_is_refused(spark, streams):
    left, right = (read_stream(spark, streams.folder / side) for side in "lr")
    options = {"on": ON, "threshold": 0.4, "time": "t", "window": 4}
    with pytest.raises(HaplyError, match=r"keep='one_to_one' is not for streams: a chain of conflicts may never end"):
        hp.join(left, right, keep="one_to_one", **options)
    with pytest.raises(HaplyError, match=r"order_by names 'u' of the right table, which has no order on streams"):
        hp.join(left, right, keep="best_left", order_by="u", **options)
    with pytest.raises(HaplyError, match=r"A join of streams has no window"):
        hp.join(left, right, ON, 0.4, how="left")


def test_plans_tell_when_rows_leave(spark, streams):
    left, right = (read_stream(spark, streams.folder / side) for side in "lr")

    def text(on=ON, **asked):
        return hp.plan_join(left, right, on, 0.4, time="t", window=4, max_delay=DELAY, **asked).explain(verbose=True)

    outer = text(how="outer")
    assert "pairs are returned at once; a row without a pair is returned when it can no longer have one: both" in outer
    assert "a stream without new rows holds back rows" in outer
    assert "a row is returned with its first pair" in text(how="semi")
    assert "a pair is returned when both of its rows can have no other" in text(keep="mutual")
    assert "ranked in one place: by their keys" in text(keep="mutual")
    assert "in one task, as there are no keys" in text("abs(left.x - right.x) <= 0.8", keep="mutual")
    assert "ranked in one place" not in text(keep="best_left")
