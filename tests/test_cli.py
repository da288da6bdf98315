"""The command line, and the demo on a small scale."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from browser_kit import View, faults
from haply import __version__
from haply.cli import COMMANDS, main
from haply.demo.readings import TOLERANCES, plant
from haply.demo.story import run_demo
from haply.demo.telling import SNIPPET, DemoResult
from haply.errors import HaplyError
from report.test_page import fetched


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"haply {__version__}\n"


def test_python_m_haply_is_the_same_command() -> None:
    said = subprocess.run([sys.executable, "-m", "haply", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"haply {__version__}\n"


def test_the_command_line_starts_without_spark_or_charts() -> None:
    heavy = ("pyspark", "altair", "vl_convert", "rich", "pandas")
    code = f"import sys, haply.cli; haply.cli.main(['--help']); print([m for m in {heavy} if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_names_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)


def test_an_unknown_command_is_told_what_it_may_have_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dmeo"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"There is no command 'dmeo'. Expected one of {', '.join(COMMANDS)}. Hint: did you mean 'demo'?" in said.err


@pytest.mark.parametrize("words", [["demo", "--rows", "many"], ["warm", "--faster"], ["--verison"]])
def test_a_wrong_option_is_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("haply: ")
    assert said.count("\n") == 1


def test_too_few_rows_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--rows", "10", "--out", str(tmp_path)]) == 2
    assert "at least 300. Found 10" in capsys.readouterr().err


def test_bench_tells_where_the_benchmarks_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "band", "--quick"]) == 0
    assert "python -m benchmarks band --quick" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("trouble", "status", "text"),
    [
        (HaplyError("There is no table 'x'", hint="did you mean 'y'?"), 2, "haply: There is no table 'x'. Hint: did"),
        (PermissionError(13, "Permission denied", "/x"), 2, "haply: [Errno 13] Permission denied: '/x'. Hint: check"),
        (KeyboardInterrupt(), 130, "haply: stopped."),
    ],
)
def test_trouble_is_one_paragraph(
    trouble: BaseException, status: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*options: Any) -> int:
        raise trouble

    monkeypatch.setattr("haply.cli.other.bench", run)
    assert main(["bench"]) == status
    said = capsys.readouterr().err
    assert text in said
    assert "Traceback" not in said


def test_warm_tells_where_kernels_are_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from haply.joins.warm import STEPS
    from haply.numerics.jit import cache_folder

    monkeypatch.setattr("haply.joins.warm.warm_everything", lambda: iter([f"pair {k}" for k in range(STEPS)]))
    assert main(["warm"]) == 0
    out = capsys.readouterr().out
    assert f"{STEPS}/{STEPS} pair {STEPS - 1}" in out
    assert f"Kernels are kept in {cache_folder()}" in out.replace("\n", " ") or cache_folder() in out
    assert "seconds" in out


REPORT = """
import haply.joins.warm
from haply.cli import main
from haply.numerics.normal import normal_cdf
def few():
    normal_cdf(0.0)
    yield "one kernel"
haply.joins.warm.warm_everything = few
import haply.cli.other
haply.cli.other._warm_explanations = lambda: None
raise SystemExit(main(["warm", "--report"]))
"""


@pytest.mark.long
def test_warm_reports_what_each_kernel_took(tmp_path: Path) -> None:
    """In a process of its own: other tests have loaded kernels in this one."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "COLUMNS": "120"}
    first, second = (
        subprocess.run([sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    rows = [[cell.strip() for cell in line[1:-1].split("│")] for line in first.stdout.splitlines() if "│" in line]
    (total,) = (row for row in rows if row[0].endswith("kernels"))
    kernels = [row for row in rows if "." in row[0]]
    assert "numerics.normal.normal_cdf" in {row[0] for row in kernels}
    assert all((row[1], row[3]) == ("1", "compiled") for row in kernels)
    seconds = [float(row[2]) for row in kernels]
    assert seconds == sorted(seconds, reverse=True)
    assert total[:2] == [f"{len(kernels)} kernels", f"{len(kernels)}"]
    assert float(total[2]) == pytest.approx(sum(seconds), abs=0.005 * (len(kernels) + 1))
    assert float(total[2]) > 0.0
    assert "compiled" not in second.stdout
    assert [line.split() for line in second.stdout.splitlines() if "normal_cdf" in line] == [
        ["│", "numerics.normal.normal_cdf", "│", "1", "│", "0.00", "│", "cached", "│"]
    ]


# -- the demo ----------------------------------------------------------------------------------------------------------


def test_the_planted_world_is_as_told() -> None:
    world = plant(6_000, seed=1)
    probes, loggers = (table.to_pydict() for table in (world.probes, world.loggers))
    assert abs(len(probes["truth"]) - 6_000) < 200
    assert len(set(probes["truth"])) == len(probes["truth"])
    assert len(set(probes["truth"]) & set(loggers["truth"])) == world.true_pairs
    errors = np.array(loggers["error"])
    assert errors.min() >= 0.1
    assert errors.max() <= 3.0
    assert abs((errors > 1.0).mean() - 0.5) < 0.05
    assert not ((errors > 0.4) & (errors < 1.5)).any()
    # the readings err as much as their devices say
    true = dict(zip(probes["truth"], probes["reading"], strict=True))
    z = [
        (reading - true[key]) / error
        for key, reading, error in zip(loggers["truth"], loggers["reading"], loggers["error"], strict=True)
        if key in true and error > 1.0
    ]
    assert np.std(z) == pytest.approx(1.0, abs=0.06)


def test_the_same_seed_plants_the_same_world() -> None:
    assert plant(600).loggers.equals(plant(600).loggers)
    assert not plant(600, seed=1).loggers.equals(plant(600, seed=2).loggers)


@pytest.fixture(scope="module")
def told(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoResult, str]:
    """The demo on a tenth of its rows, and what it printed."""
    paper = io.StringIO()
    console = Console(file=paper, width=100, highlight=False)
    result = run_demo(tmp_path_factory.mktemp("demo"), rows=3_000, spark=spark, console=console)
    return result, paper.getvalue()


@pytest.mark.long
def test_haply_beats_every_tolerance(told: tuple[DemoResult, str]) -> None:
    result = told[0].readings
    ours, best = result.haply, result.best_tolerance
    assert ours.f1 > best.f1 + 0.02
    assert ours.precision > best.precision
    assert ours.recall > best.recall
    assert len(result.tolerances) == len(TOLERANCES)
    assert all(ours.f1 > score.f1 for score in (*result.tolerances, result.plain))
    assert best.f1 >= max(score.f1 for score in result.tolerances) - 1e-9
    assert best.setting not in {"±0.05 °C", "±4 °C"}  # the sweep was wide enough to find the best one


@pytest.mark.long
def test_a_filter_on_the_probability_is_the_join_at_that_threshold(told: tuple[DemoResult, str]) -> None:
    result = told[0].readings
    (same,) = [score for score in result.curve if score.threshold == result.haply.threshold]
    assert (same.pairs, same.precision, same.recall) == (
        result.haply.pairs,
        result.haply.precision,
        result.haply.recall,
    )


@pytest.mark.long
def test_the_demo_tells_its_story(told: tuple[DemoResult, str]) -> None:
    result, said = told
    for text in ("plain join", "best tolerance", "precision", "recall", "possible pairs", "each the second join"):
        assert text in said
    for text in ("A walk off its usual route", "Alarms that come late", "Followed across four cameras", "radius"):
        assert text in said
    answer = said[said.index("Two pairs of readings, both") : said.index("What to try next")]
    assert len(answer.split()) < 420  # a minute of reading
    true, false = result.readings.example()
    assert (true.right, false.right) == (True, False)
    assert abs(true.gap - false.gap) < 0.05
    assert true.probability() >= result.readings.haply.threshold > false.probability()
    assert str(result.report) in said.replace("\n", "")
    assert "What to try next" in said
    assert "python -m benchmarks --quick" in said
    steps = re.findall(r"^\((\d+)/(\d+)\)", said, re.MULTILINE)
    assert [(int(k), int(n)) for k, n in steps] == [(k, len(steps)) for k in range(1, len(steps) + 1)]


@pytest.mark.long
def test_the_report_has_its_sections_and_fetches_nothing(told: tuple[DemoResult, str]) -> None:
    result, _ = told
    html = result.report.read_text(encoding="utf-8")
    for heading in (
        "All ",
        "Six more questions",
        "How sure the pairs are",
        "The funnel",
        "The two pairs, rule by rule",
        "A walk off its usual route",
        "Alarms that come late",
        "Followed across four cameras",
        "Two catalogues of the sky",
    ):
        assert f"<h2>{heading}" in html
    assert html.count('class="chart"') == 13
    assert html.index('class="chart"') < html.index("<h2>")  # it begins with a picture
    assert fetched(html) == []


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_text_of_the_report_is_hidden(told: tuple[DemoResult, str], dark: bool, tmp_path: Path) -> None:
    html = told[0].report.read_text(encoding="utf-8")
    views = [View(f"{width} px", html, width) for width in (1280, 390)]
    assert faults(views, tmp_path, least_size=9.0, dark=dark, contrast=4.5) == {view.name: [] for view in views}


def test_the_snippet_to_try_next_runs(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import haply

    monkeypatch.setattr(haply, "local_session", lambda: spark, raising=False)
    exec(SNIPPET, {})
    assert "probability" in capsys.readouterr().out
