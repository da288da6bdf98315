"""``haply sql`` and ``haply explain``: files in, files out, and errors that are one paragraph."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.errors import PySparkRuntimeError

from haply.cli import main
from haply.engines.spark.files import _silenced_jvm
from haply.errors import HaplyError
from report.test_page import fetched

QUERY = """SELECT s.parcel, d.ticket, PROB() AS p
           FROM (SELECT parcel, GAUSSIAN(kg, error) AS kg FROM shop) s,
                (SELECT ticket, GAUSSIAN(kg, error) AS kg FROM depot) d
           WHERE abs(s.kg - d.kg) <= 0.05 ORDER BY parcel WITH THRESHOLD 0.5"""


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.uses_spark)])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two tables in files, as options; on Spark the shared session answers."""
    if request.param == "spark":
        spark = request.getfixturevalue("spark")
        monkeypatch.setattr("haply.engines.spark.files.quiet_session", lambda name, paths: spark)
    shop, depot = tmp_path / "shop.csv", tmp_path / "depot.json"
    shop.write_text("parcel,kg,error\nA,2.00,0.02\nB,2.10,0.02\nC,3.50,0.05\n")
    rows = [(1, 2.03, 0.03), (2, 2.12, 0.03), (3, 3.90, 0.05)]
    depot.write_text("\n".join(json.dumps(dict(zip(("ticket", "kg", "error"), row, strict=True))) for row in rows))
    return ["--engine", request.param, "--table", f"shop={shop}", "--table", f"depot={depot}"]


HERE_ALWAYS = pytest.mark.parametrize(
    "files", ["local", pytest.param("spark", marks=[pytest.mark.uses_spark, pytest.mark.long])], indirect=True
)
"""For what does not depend on the engine: on Spark only with ``--long``."""


def test_an_answer_in_a_csv_file(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "pairs.csv"
    assert main(["sql", QUERY, *files, "--out", str(out)]) == 2
    assert f"There is no folder {out.parent} for pairs.csv" in capsys.readouterr().err
    out.parent.mkdir()
    assert main(["sql", QUERY, *files, "--out", str(out)]) == 0
    with out.open() as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["parcel"], row["ticket"], round(float(row["p"]), 3)) for row in rows] == [
        ("A", "1", 0.697),
        ("B", "2", 0.771),
    ]
    assert [path.name for path in out.parent.iterdir()] == ["pairs.csv"]
    said = capsys.readouterr()
    assert said.out == f"2 rows written to {out}\n"
    steps = [line for line in said.err.splitlines() if not line.startswith("haply: compiling the kernels")]
    assert not steps if "local" in files else "Answering the query (4 steps)" in said.err


@HERE_ALWAYS
def test_questions_about_rows(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = "SAME(GAUSSIAN(s.kg, s.error), GAUSSIAN(d.kg, d.error))"
    query = (
        f"SELECT parcel, ticket, P_ANY() AS p FROM shop s LEFT JOIN depot d ON {same} WITH DENSITY 1.5 COMPLETENESS .8"
    )
    out = tmp_path / "same.csv"
    assert main(["sql", f"{query} THRESHOLD .5 ORDER BY parcel", *files, "--out", str(out)]) == 0
    with out.open() as lines:
        rows = [(row["parcel"], row["ticket"], round(float(row["p"]), 3)) for row in csv.DictReader(lines)]
    assert rows == [("A", "1", 0.955), ("B", "2", 0.968), ("C", "", 0.0)]
    capsys.readouterr()
    near = "abs(GAUSSIAN(s.kg, s.error) - GAUSSIAN(d.kg, d.error)) <= 0.05"
    for text, said in (
        (query, "completeness  0.8"),
        (
            f"SELECT P_ANY() FROM shop s LEFT JOIN depot d ON {near} GROUP BY s",
            "how many right rows match each left row",
        ),
        ("SELECT ticket FROM shop s ASOF JOIN depot d ON d.kg <= s.kg", "All times are certain"),
    ):
        assert main(["explain", text, *files]) == 0
        assert said in capsys.readouterr().out


@pytest.mark.long(keep=1)
def test_an_answer_in_parquet_with_plan_and_report(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, report = tmp_path / "pairs.parquet", tmp_path / "report.html"
    query = QUERY.replace("s.parcel, d.ticket, PROB() AS p", "*").replace("ORDER BY parcel", "")
    assert main(["sql", query, *files, "--out", str(out), "--explain", "--report", str(report)]) == 0
    found = pyarrow.parquet.read_table(out)
    assert found.column_names == ["parcel", "s_kg", "ticket", "d_kg", "probability"]
    assert found.num_rows == 2
    said = capsys.readouterr().out
    assert said.startswith("About 2 of 9 pairs will be looked at.\nThreshold join\n")
    assert f"Report: {report}" in said
    page = report.read_text(encoding="utf-8")
    for text in ("WITH THRESHOLD 0.5", "Threshold join", "pairs possible", "2 rows", "mean 2"):
        assert text in page
    assert fetched(page) == []


def test_structs_in_csv_are_json(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "all.csv"
    query = "SELECT parcel, UNIFORM(kg - 1, kg) AS `a,b` FROM shop LIMIT 1"
    assert main(["sql", query, *files, "--out", str(out)]) == 0
    with out.open() as lines:
        (row,) = csv.DictReader(lines)
    assert json.loads(row["a,b"]) == {"lo": 1.0, "hi": 2.0}


def test_without_a_file_the_first_rows_are_shown(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(QUERY))
    assert main(["sql", "-", *files]) == 0
    shown = capsys.readouterr().out
    assert "parcel" in shown
    assert "0.697" in shown
    query = tmp_path / "query.sql"
    query.write_text("SELECT ticket FROM depot WHERE kg > 3")
    assert main(["sql", f"@{query}", *files]) == 0
    assert "ticket" in capsys.readouterr().out


@HERE_ALWAYS
def test_explain_only_explains(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", QUERY, *files]) == 0
    said = capsys.readouterr().out
    assert said.startswith("About 2 of 9 pairs will be looked at.\nThreshold join\n")
    assert "estimates     3 x 3 usable rows" in said
    assert main(["sql", QUERY, *files, "--explain"]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.long
def test_streams_go_into_a_folder_and_go_on(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haply.engines.spark.files.quiet_session", lambda name, paths: spark)
    for name, shift in (("one", 0.0), ("two", 1.0)):
        rows = [(k, 10.0 * k + shift, 1.0 * k, 0.1) for k in range(4)]
        spark.createDataFrame(rows, "id int, time double, m double, s double").selectExpr(
            "id", "time", "named_struct('mean', m, 'sd', s) AS x"
        ).coalesce(1).write.parquet(str(tmp_path / name))
    out = tmp_path / "pairs.parquet"
    query = "SELECT one.id FROM one, two WHERE WINDOW(one, two) = 2 AND abs(one.x - two.x) < 0.5 WITH THRESHOLD 0.5"
    streams = ["--stream", f"one={tmp_path / 'one'}", "--stream", f"two={tmp_path / 'two'}"]
    for _ in range(2):  # nothing new: nothing is written twice
        assert main(["sql", query, *streams, "--out", str(out)]) == 0
        assert sorted(row.id for row in spark.read.parquet(str(out)).collect()) == [0, 1, 2, 3]
    said = capsys.readouterr().err
    assert "micro-batch 0: 8 rows in " in said  # how far it is
    for part in ("imports", "Java and Spark session", "tables", "plan", "kernels", "run"):  # where the time goes
        assert re.search(rf"\d seconds: .*\b{part} \d+\.\d", said)
    assert main(["sql", query, *streams]) == 2
    assert "The answer of streams goes into a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["SELECT * FROM shpo"], "There is no table 'shpo'. Expected one of shop, depot. Hint: did you mean 'shop'?"),
        (["SELECT * FROM shop WHERE kg <"], "line 1, column 30"),
        (["SELECT * FROM shop", "--table", "x=nowhere.csv"], "There is no file or folder nowhere.csv"),
        (["SELECT * FROM shop", "--table", "x"], "--table x names no file. Expected name=path"),
        (["SELECT * FROM shop", "--table", "shop=a.csv"], "--table gives 'shop' twice"),
        (["SELECT * FROM shop", "--stream", "shop=a"], "'shop' is a table and a stream"),
        (["SELECT * FROM shop", "--out", "x.xlsx"], "A result cannot go into x.xlsx. Expected a name that ends in"),
        (["SELECT * FROM shop", "--out", "."], "A result cannot go into ."),
        (["@nowhere.sql"], "nowhere.sql"),
        (
            ["SELECT * FROM shop WHERE GAUSSIAN(kg, -1) < 3"],
            "The numbers given to gaussian() are not parameters of a distribution. Found sd < 0 in {'sd': -1.0}.",
        ),
        (["SELECT * FROM shop WHERE GAUSSIAN(kg, kg - 100) < 3"], "gaussian(kg, kg - 100)' has a row"),
        (["SELECT cast(parcel AS int) FROM shop"], "refuses it: A is not a whole number|'A'"),
    ],
)
def test_trouble_is_one_paragraph_and_status_2(
    files: list[str], words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", words[0], *files, *words[1:]]) == 2
    said = capsys.readouterr().err
    assert any(one in said for one in text.split("|")), said
    assert "Traceback" not in said
    assert len(said.partition("haply: ")[2]) < 700


@HERE_ALWAYS
def test_a_file_that_is_there_is_not_written_over(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "there.csv"
    out.write_text("mine")
    assert main(["sql", QUERY, *files, "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert out.read_text() == "mine"


def test_what_a_jvm_prints_is_kept_aside_and_told_if_it_does_not_start(capfd: pytest.CaptureFixture[str]) -> None:
    with _silenced_jvm():
        subprocess.run(["sh", "-c", "echo a line of its own >&2"], check=True)

    def start_in_vain() -> None:
        with _silenced_jvm():
            subprocess.run(["sh", "-c", "echo Could not create the Java Virtual Machine. >&2"], check=True)
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    with pytest.raises(HaplyError, match=r"^Spark does not start\. Found Could not create the Java Virtual Machine\.$"):
        start_in_vain()
    subprocess.run(["sh", "-c", "echo heard again >&2"], check=True)
    assert capfd.readouterr().err == "heard again\n"
