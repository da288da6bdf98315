"""The commands that ask something of files, on the local engine: what they find, show, write and refuse."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import haply as hp
from haply.cli import COMMANDS, main
from haply.cli.parser import HOW, KEEP, UNITS
from haply.cli.tables import table_text, wrapped
from haply.models.sky import AngleUnit
from haply.planning.answers.options import How, Keep

MODELS = ["--left", "kg=gaussian(kg, err)", "--right", "kg=gaussian(kg, err)"]
NEAR = ["--on", "abs(left.kg - right.kg) <= 0.05", "--threshold", "0.5"]
JOIN = ["join", "shop.csv", "depot.json", *MODELS, *NEAR]


COMPILING = "haply: compiling the kernels"
"""Begins the line that is printed once, by the first command that needs a kernel that is not compiled."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two tables, in which the command runs."""
    (tmp_path / "shop.csv").write_text("parcel,kg,err\nA,2.00,0.02\nB,2.10,0.02\nC,3.50,0.05\n")
    rows = [(1, 2.03, 0.03), (2, 2.12, 0.03), (3, 3.90, 0.05)]
    lines = (json.dumps(dict(zip(("ticket", "kg", "err"), row, strict=True))) for row in rows)
    (tmp_path / "depot.json").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    """What a command prints; nothing goes to standard error if all is well."""
    assert main(words) == status
    said = capsys.readouterr()
    error = "".join(line for line in said.err.splitlines(keepends=True) if not line.startswith(COMPILING))
    assert (error == "") == (status < 2), error
    assert "?." not in error
    assert error.count("`") % 2 == 0
    assert "Traceback" not in error
    return error if status >= 2 else said.out


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# -- questions ---------------------------------------------------------------------------------------------------------


def test_join(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows_of(told(capsys, *JOIN, "--columns", "parcel, ticket", "-o", "-"))
    assert [(row["parcel"], row["ticket"], round(float(row["probability"]), 3)) for row in found] == [
        ("A", "1", 0.697),
        ("B", "2", 0.771),
    ]
    left = rows_of(told(capsys, *JOIN, "--columns", "parcel", "--how", "anti", "-o", "-"))
    assert [row["parcel"] for row in left] == ["C"]
    best = rows_of(told(capsys, *JOIN, "--keep", "best_left", "--k", "1", "--strict", "-o", "-"))
    assert len(best) == 2


def test_match(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["match", "shop.csv", "depot.json", *MODELS, "--completeness", "0.8", "--columns", "parcel,ticket"]
    answers = []
    for same in ("kg", "kg=kg", "left.kg == right.kg"):
        for dense in (["--density", "1.5"], ["--area", "2"]):
            answers.append(told(capsys, *words, "--same", same, *dense, "--threshold", "0.5", "-o", "-"))
    assert len(set(answers)) == 1
    assert [(row["parcel"], row["ticket"]) for row in rows_of(answers[0])] == [("A", "1"), ("B", "2")]
    asked = [*words, "--same", "kg", "--density", "1.5", "--threshold", "0.5", "-o", "-"]
    assert [row["parcel"] for row in rows_of(told(capsys, *asked, "--on", "left.parcel != 'A'"))] == ["B"]
    assert "has the uncertain column" in told(capsys, *asked, "--on", "left.kg > 3", status=2)
    assert "--same = names no columns" in told(capsys, *words, "--same", "=", "--density", "1", status=2)
    assert "density" in told(capsys, *words, "--same", "kg", status=2)


def test_where(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["where", "shop.csv", "--threshold", "0.9", "-o", "-"]
    (one,) = rows_of(told(capsys, *words, "--on", "gaussian(kg, err) > 3"))
    (other,) = rows_of(told(capsys, *words, "--on", "kg > 3", "--model", "kg=gaussian(kg, err)"))
    assert one["parcel"] == other["parcel"] == "C"


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "check", "shop.csv", "gaussian(kg, err)") == "No bad rows.\n"
    Path("bad.csv").write_text("kg,err\n1,0.1\n2,-0.1\n")
    said = told(capsys, "check", "bad.csv", "gaussian(kg, err)", status=1)
    assert "sd < 0" in said
    assert said.endswith("1 row\n")
    said = told(capsys, "check", "bad.csv", "--model", "x=gaussian(kg, err)", status=1)
    assert "sd < 0" in said
    words = ["check", "bad.csv", "x", "--model", "x=gaussian(kg, err)", "-o", "worse.csv"]
    assert told(capsys, *words, status=1) == "1 row written to worse.csv\n"


def test_sky(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text("name,RA_ICRS,DE_ICRS,e_RA,e_DE\nA,10.0,20.0,100,100\n")
    Path("b.csv").write_text("id,lon,lat,poserr\n1,10.0,20.0001,100\n2,11,20,100\n")
    words = ["sky", "a.csv", "b.csv", "--within", "1", "--threshold", "0.5", "--columns", "name,id", "-o", "-"]
    assert "No column of the right table has a usual name for ra" in told(capsys, *words, status=2)
    words += ["--right-columns", "lon,lat,poserr"]
    (row,) = rows_of(told(capsys, *words, "--errors-in", "mas"))
    assert (row["name"], row["id"]) == ("A", "1")
    place = ["--right", "pos=sky(lon, lat, poserr * 0.001, poserr * 0.001)", "--right-columns", "pos"]
    (same,) = rows_of(told(capsys, *words, "--errors-in", "mas", *place))
    assert float(same["probability"]) == pytest.approx(float(row["probability"]))
    assert rows_of(told(capsys, *words)) == []  # errors of 100 arcseconds
    assert "names 2 columns" in told(capsys, *words, "--right-columns", "lon,lat", status=2)


def test_sql_over_paths_in_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT shop.parcel, d.ticket FROM 'shop.csv', 'depot.json' d"
    where = " WHERE abs(GAUSSIAN(shop.kg, shop.err) - GAUSSIAN(d.kg, d.err)) <= 0.05 WITH THRESHOLD 0.5"
    assert told(capsys, "sql", query + where, "-o", "-").splitlines()[1:] == ['"A",1', '"B",2']
    assert hp.sql(query + where).to_pylist() == [{"parcel": "A", "ticket": 1}, {"parcel": "B", "ticket": 2}]
    assert told(capsys, "explain", query + where).startswith("About 2 of 9 pairs")
    with pytest.raises(hp.HaplyError, match=r"line 1, column 15:\n.*\n.*\nThe table: there is no file 'no.csv'"):
        hp.sql("SELECT * FROM 'no.csv'")


def test_a_table_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["join", "shop.csv", "shop.csv", *MODELS, "--on", "abs(left.kg - right.kg) <= 0.01", "--threshold", "0.9"]
    columns = ["--columns", "parcel_left,parcel_right", "-o", "-"]
    assert told(capsys, *words, *columns).count("\n") == 1
    assert told(capsys, *words, "--self-key", "parcel", *columns).splitlines()[1:] == [
        f'"{one}","{one}",1' for one in "ABC"
    ]
    said = subprocess.run(
        [sys.executable, "-m", "haply", "sql", "SELECT a.parcel FROM 'shop.csv' a, 'shop.csv' b WHERE "
         "abs(GAUSSIAN(a.kg, a.err) - GAUSSIAN(b.kg, b.err)) <= 0.01 WITH THRESHOLD 0.9"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stderr.startswith("haply: note: ")


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "csv", "json", "jsonl", "arrow", "feather", "fits", "vot"])
def test_what_is_written_can_be_read(ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    if ending in ("fits", "vot"):
        pytest.importorskip("astropy")
    words = [*JOIN, "--columns", "parcel,ticket", "--how", "left"]
    assert told(capsys, *words, "-o", f"pairs.{ending}") == f"3 rows written to pairs.{ending}\n"
    again = rows_of(told(capsys, "sql", f"SELECT parcel, ticket FROM 'pairs.{ending}' ORDER BY parcel", "-o", "-"))
    assert [(row["parcel"], row["ticket"]) for row in again] == [("A", "1"), ("B", "2"), ("C", "")]


def test_patterns_and_folders(capsys: pytest.CaptureFixture[str]) -> None:
    Path("parts").mkdir()
    for k in range(2):
        pyarrow.feather.write_feather(pa.table({"x": [float(k)]}), f"parts/{k}.arrow")
    for path in ("parts", "parts/*.arrow"):
        assert told(capsys, "sql", f"SELECT x FROM '{path}' p ORDER BY x", "-o", "-") == '"x"\n0\n1\n'
    assert "There is no file for the pattern no*.csv" in told(capsys, "where", "no*.csv", "--on", "x>1", status=2)


def test_units_and_masks_of_fits(capsys: pytest.CaptureFixture[str]) -> None:
    astropy = pytest.importorskip("astropy.table")
    rows = {"name": ["A", "B"], "ra": [10.0, 11.0], "dec": [20.0, 20.0], "ra_error": [100.0, 100.0]}
    one = astropy.Table(rows | {"dec_error": [100.0, 100.0]}, masked=True)
    one["ra_error"].unit = one["dec_error"].unit = "mas"
    one["ra"].mask = [False, True]
    one.write("one.fits")
    one.write("one.vot", format="votable")
    for other in ("one.fits", "one.vot"):
        words = ["sky", "one.fits", other, "--within", "1", "--threshold", "0.5", "--columns", "name_left,name_right"]
        found = rows_of(told(capsys, *words, "-o", "-"))
        assert [(row["name_left"], row["name_right"]) for row in found] == [("A", "A")]
    held = hp.sql("SELECT * FROM 'one.fits'")
    assert held["ra"].to_pylist() == [10.0, None]


def test_without_astropy_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "astropy.table", None)
    Path("a.fits").write_bytes(b"")
    said = told(capsys, "where", "a.fits", "--on", "x > 1", status=2)
    assert 'pip install "haply[astro]"' in said


def test_an_answer_can_be_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, *JOIN, "--columns", "parcel,ticket", "-o", "pairs.arrow")
    found = rows_of(told(capsys, "sql", "SELECT parcel, probability AS p FROM 'pairs.arrow'", "-o", "-"))
    assert [(row["parcel"], round(float(row["p"]), 3)) for row in found] == [("A", 0.697), ("B", 0.771)]
    assert "parcel" in told(capsys, "sql", "SELECT * FROM 'pairs.arrow'")


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_the_first_rows_fit_into_sixty_letters(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, *JOIN).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("parcel")
    assert lines[0].endswith("probability")
    assert lines[-1] == "2 rows"
    assert all(line.isascii() for line in lines)
    pyarrow.parquet.write_table(pa.table({"x": [float(k) for k in range(30)]}), "many.parquet")
    said = told(capsys, "where", "many.parquet", "--on", "uniform(x, x + 1) >= 0")
    assert said.endswith("The first 20 rows of 30; -o FILE writes all of them.\n")


def test_columns_that_do_not_fit_are_named() -> None:
    names = [f"column{k}" for k in range(12)]
    lines = table_text(names, [["12345678"] * 12], 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert "column0" in lines[0]
    assert "column11" in lines[0]
    assert lines[-1].startswith("Not shown: column")
    assert table_text(["a"], [], 60) == "a\n-"
    assert table_text(["a", "b"], [["x" * 99, "1"]], 20).splitlines()[-1] == "x" * 14 + "...  1"


def test_columns_that_tell_which_rows_they_are_are_left_out_last() -> None:
    names = ["parcel", "kg_left", "err_left", "ticket", "kg_right", "err_right", "bayes_factor", "p_match"]
    model = "(mean 2, sd 0.02)"
    row = ["A", model, "0.02", "1", model, "0.03", "9123.45678", "0.949245"]
    lines = table_text(names, [row], 40).splitlines()
    assert lines[0].split() == ["parcel", "ticket", "bayes_factor", "p_match"]
    assert lines[-1] == "Not shown: kg_left, err_left, kg_righ..."
    assert "kg_left" in table_text(names, [row], 80)


def test_the_lines_of_a_plan_are_broken_beside_their_names() -> None:
    plan = "Join\n  condition     " + "words " * 12 + "\nNot taken\n  plain join    short"
    broken = wrapped(plan, 50).splitlines()
    assert max(map(len, broken)) <= 50
    assert broken[0] == "Join"
    assert broken[2].startswith(" " * 16 + "words")
    assert broken[-1] == "  plain join    short"


def test_the_column_of_probabilities_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("scores.csv").write_text("id,score\n1,0.5\n2,0.9\n")
    for command, out in (("plot", "scores.svg"), ("explore", "scores.html")):
        assert main([command, "scores.csv", "-o", out]) == 2
        assert "--probability p on the command line" in capsys.readouterr().err
        assert main([command, "scores.csv", "--probability", "score", "-o", out]) == 0
        assert Path(out).stat().st_size > 1000


def test_explain_alone_prints_only_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, *JOIN, "--explain")
    assert said.startswith("About 2 of 9 pairs")
    assert "1 cells" not in told(capsys, "explain", "SELECT kg FROM 'shop.csv' WHERE kg > 1", "--verbose")


@pytest.mark.long
def test_in_a_pipe() -> None:
    """Through real pipes: nothing but the answer, also if nobody reads to the end."""
    environment = os.environ | {"COLUMNS": "60"}
    command = [sys.executable, "-m", "haply"]
    said = subprocess.run([*command, *JOIN], capture_output=True, text=True, check=True, env=environment)
    assert not [line for line in said.stderr.splitlines() if not line.startswith(COMPILING)]
    assert max(map(len, said.stdout.splitlines())) <= 60
    pyarrow.parquet.write_table(pa.table({"x": [float(k) for k in range(200_000)]}), "many.parquet")
    words = ["where", "many.parquet", "--on", "uniform(x, x + 1) >= 0", "-o", "-"]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b'"x","probability"\n'
        running.stdout.close()
        complaints = running.stderr.read().decode().splitlines()
        assert not [line for line in complaints if not line.startswith(COMPILING)]
    assert running.returncode == 0


def test_a_command_imports_no_library_that_it_does_not_need() -> None:
    """Pandas and SciPy's linear algebra would take half a second. Numba and pyarrow go on as they should."""
    code = f"""
import sys
import numba, numpy as np, pyarrow as pa
from haply.cli import main
assert main({JOIN!r}, alone=True) == 0
unneeded = [name for name in ("pandas", "scipy.linalg", "pyspark", "altair") if name in sys.modules]
assert not unneeded, unneeded
assert numba.njit(lambda x: x @ x)(np.array([1.0, 2.0])) == 5.0
import pandas
assert pandas.Series([1]).sum() == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_numba_is_imported_with_an_empty_stack() -> None:
    """At some depths its import takes .2 s longer."""
    code = """
import sys, threading
import haply as hp

class Watch:
    def find_spec(self, name, path, target=None):
        if name == "numba.core.typeconv.rules":
            threads.append(threading.current_thread())

threads = []
sys.meta_path.insert(0, Watch())
assert not hasattr(hp, "__wrapped__") and "numba" not in sys.modules
hp.join
assert len(threads) == 1 and threads[0] is not threading.main_thread(), threads
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_time_left_is_told_where_it_is_known() -> None:
    from rich.progress import Progress

    from haply.cli.progress import _Times

    clock = [0.0]
    progress = Progress(get_time=lambda: clock[0])
    task = progress.add_task("Answering", total=None)
    clock[0] = 8.0
    assert str(_Times().render(progress.tasks[0])) == "0:00:08"
    for done in range(1, 4):
        clock[0] += 2.0
        progress.update(task, completed=done, total=10)
    assert str(_Times().render(progress.tasks[0])) == "0:00:14, 0:00:14 left"


def test_progress_on_a_terminal_goes_on_while_cells_are_done() -> None:
    from rich.console import Console

    from haply.cli.progress import followed_here
    from haply.engines.local.threads import tell_follower

    paper = io.StringIO()
    console = Console(file=paper, force_terminal=True, width=100)

    def work() -> list[str]:
        tell_follower(1, 2)
        tell_follower(2, 2)
        return ["tables read"]

    assert list(followed_here(console, "Answering", (step for _ in range(1) for step in work()))) == ["tables read"]
    assert "Answering" in paper.getvalue()
    tell_follower(1, 2)  # nobody follows any more


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["join", "shop.csv", "no.csv", *NEAR], "There is no file or folder no.csv"),
        (["join", "shop.csv", "shop.txt", *NEAR], "There is no file or folder shop.txt"),
        ([*JOIN, "-o", "x.xls"], "A result cannot go into x.xls. Expected a name that ends in .parquet, .csv"),
        ([*JOIN, "-o", "shop.csv"], "shop.csv exists already"),
        ([*JOIN, "-o", "no/x.csv"], "There is no folder no for x.csv. Hint: mkdir -p no makes it."),
        ([*JOIN, "--report", "no/x.html"], "There is no folder no for x.html"),
        ([*JOIN, "--left", "kg"], "--left kg names no model. Expected NAME=MODEL"),
        ([*JOIN, "--left", "a=kg"], "`kg` makes no uncertain column"),
        ([*JOIN, "--left", "a=gaussian(kgs, err)"], "did you mean 'kg'?"),
        ([*JOIN, "--left", "a=gaussian(kg, -1)"], "sd < 0"),
        ([*JOIN[:-2]], "Hint: give --threshold 0.01"),
        ([*JOIN, "--treshold", "1"], "There is no option '--treshold'"),
        ([*JOIN, "--how", "inside"], "haply join: argument --how: invalid choice: 'inside'"),
        (["match", "shop.csv", "depot.json", "--same", "kg"], "the following arguments are required: --completeness"),
        (["sql", "SELECT * FROM shop"], "There is no table 'shop'. Hint: --table shop=shop.csv"),
        (["sql", "SELECT * FROM 'shop.csv' LIMIT 1", "--engine", "local", "--stream", "a=b"], "Streams need Spark"),
        (["check", "shop.csv", "parcel"], "Column 'parcel' holds no uncertain values"),
        (
            ["check", "shop.csv"],
            "Which column to check is not clear. Expected a table with one uncertain column. Found none",
        ),
    ],
)
def test_mistakes_are_one_paragraph(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, *words, status=2)
    assert text in said
    assert said.startswith("haply: ")
    assert said.endswith(".\n") or said.endswith("?\n")


def test_bad_rows_are_told_with_the_command_that_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.csv").write_text("kg,err\n1,0.1\n2,-0.1\n")
    said = told(capsys, "where", "bad.csv", "--on", "gaussian(kg, err) > 1", "--threshold", "0.5", status=2)
    assert "haply check FILE COLUMN, or leave them out with --invalid drop" in said


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_can_be_read(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, command, "--help")
    assert f"  haply {command}" in said.partition("examples:")[2]
    assert "130 interrupted" in said


def test_choices_are_those_of_python() -> None:
    assert get_args(How) == HOW
    assert get_args(Keep) == KEEP
    assert get_args(AngleUnit) == UNITS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "completion", shell)
    assert all(command in said for command in COMMANDS)
    assert "errors-in" in said
    assert "one_to_one" in said


def test_bash_completes(capsys: pytest.CaptureFixture[str]) -> None:
    script = told(capsys, "completion", "bash")
    for words, expected in (
        ("haply jo", "join"), ("haply join --thr", "--threshold"), ("haply join a b --how an", "anti"),
        ("haply completion f", "fish"), ("haply where sh", "shop.csv"),
    ):  # fmt: skip
        asked = (
            f'{script}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _haply; echo "${{COMPREPLY[@]}}"'
        )
        found = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
        assert found.stdout.split() == [expected], words


def test_a_page_of_pairs(tmp_path, capsys):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("a_left,a_right,probability\n1,2,0.9\n3,4,0.6\n", encoding="utf-8")
    page = tmp_path / "page.html"
    assert main(["explore", str(pairs), "-o", str(page), "--title", "Parcels"]) == 0
    assert "It needs no network" in capsys.readouterr().out.replace("it needs", "It needs")
    assert "Parcels" in page.read_text(encoding="utf-8")


# -- pictures ----------------------------------------------------------------------------------------------------------


def test_plot_draws_models_thresholds_and_maps(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    said = told(capsys, "plot", "shop.csv", "gaussian(kg, err)", "-o", "models.svg", "--rows", "2")
    assert said == "The chart is in models.svg: Where the first 2 of 3 values may lie\n"
    picture = (folder / "models.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    said = told(capsys, "plot", "shop.csv", "x", "--model", "x=measured(kg, err)")
    assert "chart.svg" in said
    told(capsys, *JOIN, "-o", "pairs.parquet")
    assert "At 0.5, 2 of 2 pairs are kept" in told(capsys, "plot", "pairs.parquet", "-o", "thresholds.png")
    assert (folder / "thresholds.png").read_bytes().startswith(b"\x89PNG")
    places = [[0.0, 1.0], [2.0, 3.0]]
    pyarrow.parquet.write_table(
        pa.table({"here": places, "there": places, "probability": [0.9, 0.8]}), "places.parquet"
    )
    assert "2 pairs of positions" in told(capsys, "plot", "places.parquet", "here", "there", "-o", "map.html")
    page = (folder / "map.html").read_text(encoding="utf-8")
    assert "2 pairs of positions" in page
    assert 'src="http' not in page


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["shop.csv", "kg"], "Column 'kg' is not uncertain. Expected a column of models"),
        (["shop.csv"], "The table has no column of probabilities"),
        (["shop.csv", "a", "b", "c"], "3 columns are too many for a chart"),
        (["shop.csv", "gaussian(kg, err)", "-o", "chart.pdf"], "Expected a name that ends in .svg, .png, .html"),
        (["shop.csv", "gaussian(kg, err)", "-o", "none/chart.svg"], "There is no folder none"),
        (["shop.csv", "gaussian(kg, err)", "--rows", "0"], "Expected --rows of at least 1"),
        (["none.csv", "kg"], "There is no file or folder none.csv"),
    ],
)
def test_plot_says_what_is_wrong(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert expected in told(capsys, "plot", *words, status=2)


def test_plot_leaves_bad_rows_out(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "bad.csv").write_text("kg,err\n1,0.1\n2,-1\n")
    assert main(["plot", "bad.csv", "gaussian(kg, err)"]) == 0
    assert "note: 1 bad row left out, such as: sd < 0" in capsys.readouterr().err
